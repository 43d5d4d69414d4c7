"""The bodies of OpenAI-compatible requests, with what of them this service can do."""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from service.generator.requests import Generation
from service.problems import RequestError
from tuner.engines.base import Sampling

_DEFAULTS = Sampling()
MAX_STOPS = 16

# What would change the answer, with the values under which it doesn't.
_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "echo": (None, False),
    "frequency_penalty": (None, 0, 0.0),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "presence_penalty": (None, 0, 0.0),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
}


def _not_zero(tokens: int) -> int:
    if tokens == 0:
        raise PydanticCustomError("token_count", "Input should be -1, or greater than or equal to 1")
    return tokens


Tokens = Annotated[int, Field(ge=-1), AfterValidator(_not_zero)]
"""How long an answer may be; -1 for as long as the context allows."""
# A length of any kind also makes Pydantic refuse texts that are no Unicode, halves of surrogate pairs.
Name = Annotated[str, Field(max_length=200)]
Content = Annotated[str, Field(max_length=1 << 24)]
Text = Annotated[str, Field(min_length=1, max_length=1 << 24)]


class StreamOptions(BaseModel):
    """What a stream holds besides the text."""

    include_usage: bool = False


class TextPart(BaseModel):
    """A part of a message."""

    type: Literal["text"]
    text: Content


class Message(BaseModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content | list[TextPart]

    def plain(self) -> dict[str, str]:
        """As templates read it: "developer" is the newer name of "system"."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class GenerateBody(BaseModel):
    """What both kinds of requests share. Fields that are not named here are ignored where they can't change
    the answer, and refused where they would."""

    model_config = ConfigDict(extra="allow")

    model: Name | None = None
    n: int | None = Field(None, description="Only 1.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    stop: Text | Annotated[list[Text], Field(max_length=MAX_STOPS)] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, le=1_000_000)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    ignore_eos: bool = False

    def sampling(self) -> dict[str, float | int]:
        """The sampling, with the engine's usual values where none are given and a random seed."""
        return {
            "temperature": 0.8 if self.temperature is None else self.temperature,
            "top_k": _DEFAULTS.top_k if self.top_k is None else self.top_k,
            "top_p": _DEFAULTS.top_p if self.top_p is None else self.top_p,
            "min_p": _DEFAULTS.min_p if self.min_p is None else self.min_p,
            "repetition_penalty": self.repetition_penalty or 1.0,
            "seed": secrets.randbits(32) if self.seed is None else self.seed & 0xFFFFFFFF,
        }

    @staticmethod
    def longest(tokens: int | None) -> int | None:
        """The bound of an answer; None for none but the context."""
        return None if tokens == -1 else tokens

    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def check_supported(self) -> None:
        """RequestError for what would change the answer and can't be done."""
        if self.n not in (None, 1):
            raise RequestError(400, f"n={self.n}: only 1 answer at a time is supported", param="n")
        extra = self.model_extra or {}
        for name, harmless in _UNSUPPORTED.items():
            if name in extra and extra[name] not in harmless:
                raise RequestError(400, f"{name} is not supported", param=name, code="unsupported_parameter")

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


class ChatBody(GenerateBody):
    """`POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, max_length=10_000)
    max_completion_tokens: Tokens | None = None
    context_overflow: Literal["error", "drop_old_turns"] = Field(
        "error", description="Whether whole old turns may be dropped where the context is too small."
    )

    def generation(self) -> Generation:
        """The request that the generator gets."""
        self.check_supported()
        return Generation(
            messages=tuple(message.plain() for message in self.messages),
            prompt=None,
            max_tokens=self.longest(self.max_completion_tokens or self.max_tokens),
            sampling=self.sampling(),
            stop=self.stops(),
            drop_old_turns=self.context_overflow == "drop_old_turns",
            ignore_eos=self.ignore_eos,
        )


class CompletionBody(GenerateBody):
    """`POST /v1/completions`."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=1)]

    def generation(self) -> Generation:
        """The request that the generator gets."""
        self.check_supported()
        return Generation(
            messages=None,
            prompt=self.prompt if isinstance(self.prompt, str) else self.prompt[0],
            max_tokens=self.longest(self.max_tokens),
            sampling=self.sampling(),
            stop=self.stops(),
            ignore_eos=self.ignore_eos,
        )
