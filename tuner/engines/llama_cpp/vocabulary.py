"""Text of a loaded model: tokens, bytes, chat template."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tuner.engines.base import EngineError
from tuner.engines.llama_cpp.native import low

_PIECE_BYTES = 256


class Vocabulary:
    """Tokenizer and chat template of one loaded model."""

    def __init__(self, model: Any) -> None:
        self.handle = low.llama_model_get_vocab(model)
        self.size: int = low.llama_vocab_n_tokens(self.handle)
        self._has_tokenizer = low.llama_vocab_type(self.handle) != low.LLAMA_VOCAB_TYPE_NONE
        self._model = model
        self._template: Any = None

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids; control tokens in the text are understood, a leading token is added where wanted.

        A text that already begins with the leading token (as chat templates write it) gets no second;
        without `leading` none is added.
        """
        if not self._has_tokenizer:
            raise EngineError("the model has no tokenizer")
        data = text.encode()
        first = low.llama_vocab_bos(self.handle)
        first_piece = self.piece(first) if first >= 0 else b""
        add_special = leading and not (first_piece and data.startswith(first_piece))
        room = len(data) + 8
        while True:
            tokens = (low.llama_token * room)()
            count = low.llama_tokenize(self.handle, data, len(data), tokens, room, add_special, True)
            if count >= 0:
                return list(tokens[:count])
            room = -count

    def piece(self, token: int) -> bytes:
        """The bytes of one token, control tokens included."""
        if token < 0:
            return b""
        room = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = low.llama_token_to_piece(self.handle, token, buffer, room, 0, True)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some tokens; control tokens give none."""
        if not self._has_tokenizer:
            raise EngineError("the model has no tokenizer")
        is_control = low.llama_vocab_is_control
        handle = self.handle
        return b"".join(self.piece(token) for token in tokens if not is_control(handle, token))

    def check(self, tokens: Sequence[int]) -> None:
        """EngineError where a token id is outside the vocabulary."""
        for token in (min(tokens, default=0), max(tokens, default=0)):
            if not 0 <= token < self.size:
                raise EngineError(f"token {token} is outside the vocabulary of {self.size}")

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The messages in the file's own template, rendered in a sandbox; None where it has none.

        Raises EngineError with the template's own complaint (roles out of order, say).
        """
        import jinja2

        if self._template is None:
            text = low.llama_model_chat_template(self._model, None)
            if text is None:
                return None
            try:
                self._template = _environment().from_string(text.decode())
            except jinja2.TemplateError as error:
                raise EngineError(f"the model's chat template is broken: {error}") from error
        try:
            return str(
                self._template.render(
                    messages=[dict(message) for message in messages],
                    add_generation_prompt=True,
                    bos_token=self.piece(low.llama_vocab_bos(self.handle)).decode(errors="replace"),
                    eos_token=self.piece(low.llama_vocab_eos(self.handle)).decode(errors="replace"),
                )
            )
        # A template is a program from the model file: besides its own complaint it can fail in any
        # of the ways in which an expression over strings and lists can.
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise EngineError(f"the model's chat template refuses: {error}") from error


def _environment() -> Any:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.BaseLoader(),
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(
        value, ensure_ascii=False, indent=indent
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda text: datetime.now().strftime(text)
    return environment


def _refuse(message: str) -> None:
    raise ValueError(message)
