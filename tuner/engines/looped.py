"""The part of a session that is the same for every engine which generates by a loop of ours."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError, Sampling, Token


class Loop(Protocol):
    """A generation loop (`slots.SlotLoop`)."""

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
        reuse_prefix: bool = False,
    ) -> int:
        """As the session's."""

    def step(self) -> list[Token]:
        """As the session's."""

    def cancel(self, sequence: int) -> None:
        """As the session's."""

    def reused(self, sequence: int) -> int:
        """As the session's."""


AnyLoop = TypeVar("AnyLoop", bound=Loop)


class LoopedSession(Generic[AnyLoop]):
    """Generates by `_loop`, which `configure` makes; only `cancel` may be called from another thread."""

    def __init__(self) -> None:
        self._loop: AnyLoop | None = None

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
        reuse_prefix: bool = False,
    ) -> int:
        """Queue a request; EngineError for a prompt that is empty, foreign or too long for the context."""
        return self._ready().add(
            prompt, max_tokens, sampling=sampling, ignore_eos=ignore_eos, reuse_prefix=reuse_prefix
        )

    def step(self) -> list[Token]:
        """Compute what has its turn: a token, a part of a prompt, or a batch of both."""
        return self._ready().step()

    def cancel(self, sequence: int) -> None:
        """Drop a sequence before the next step: one that computes can't be stopped from Python."""
        if self._loop is not None:
            self._loop.cancel(sequence)

    def reused(self, sequence: int) -> int:
        """What the sequence's place held when it began."""
        return self._ready().reused(sequence)

    def now_ns(self) -> int:
        """`time.perf_counter_ns`."""
        return time.perf_counter_ns()

    def _ready(self) -> AnyLoop:
        if self._loop is None:
            raise EngineError("the session is not configured")
        return self._loop


def count_of(settings: Mapping[str, Setting], name: str, default: int) -> int:
    """A setting of the loop's own that counts something; EngineError for anything but a number from 1 on."""
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise EngineError(f"{name}={value}; at least 1 is needed")
    return value
