"""What a generator is asked and what it answers: one request, its stream of pieces, its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from service.generator.launching import Serving
from service.problems import RequestError


@dataclass(frozen=True)
class Generation:
    """One request: `messages` or `prompt`; None for `max_tokens` is all that the context holds."""

    messages: tuple[Mapping[str, str], ...] | None
    prompt: str | None
    max_tokens: int | None
    sampling: Mapping[str, float | int]
    stop: tuple[str, ...] = ()
    drop_old_turns: bool = False
    ignore_eos: bool = False

    def message(self, key: int) -> dict[str, object]:
        """As it is sent to the worker."""
        text = {"prompt": self.prompt} if self.messages is None else {"messages": list(self.messages)}
        return {
            "op": "add",
            "key": key,
            "max_tokens": self.max_tokens,
            "sampling": dict(self.sampling),
            "stop": list(self.stop),
            "drop_old_turns": self.drop_old_turns,
            "ignore_eos": self.ignore_eos,
            **text,
        }


@dataclass(frozen=True)
class End:
    """How a request ended; times are the worker's, from when it got the request."""

    finish: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_ms: float
    tpot_ms: float | None


@dataclass
class Stream:
    """The pieces of one answer as they come; iterate over it. `end` is set when the iteration ends.

    `cancel` and `serving` are its generator's: what answers. `listener` hears everything that comes.
    """

    key: int
    request: Generation
    cancel: Callable[[], None]
    submitted_s: float
    serving: Serving | None = None
    started_s: float | None = None
    end: End | None = None
    listener: Callable[[str | End], None] | None = None
    _pieces: asyncio.Queue[str | End | RequestError] = field(default_factory=asyncio.Queue)

    @property
    def profile(self) -> str | None:
        """The profile that answers; None for the engine's defaults."""
        return None if self.serving is None else self.serving.profile_id

    def put(self, item: str | End | RequestError) -> None:
        """Called by the generator."""
        if self.listener is not None and not isinstance(item, RequestError):
            self.listener(item)
        self._pieces.put_nowait(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        item = await self._pieces.get()
        if isinstance(item, str):
            return item
        if isinstance(item, RequestError):
            raise item
        self.end = item
        raise StopAsyncIteration
