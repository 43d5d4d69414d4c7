"""A contestant of the comparison: who, what it chose, with what effort; and how a budget is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from profiles.vocabulary import Config


@dataclass(frozen=True)
class Contestant:
    """One way to come to a configuration; `chosen` is None where it was skipped, and `effort` says why."""

    name: str
    chosen: Config | None
    effort: str
    seconds: float = 0.0

    @classmethod
    def skipped(cls, name: str, reason: object) -> Self:
        """One that could not take part."""
        return cls(name, None, f"skipped: {reason}")


@dataclass(frozen=True)
class Deadline:
    """A budget of wall-clock seconds, running since it was made."""

    total_s: float
    began_s: float
    clock: Callable[[], float]

    @classmethod
    def of(cls, total_s: float, clock: Callable[[], float] = time.monotonic) -> Self:
        """One that begins now."""
        return cls(total_s, clock(), clock)

    @property
    def left_s(self) -> float:
        """Seconds left; below 0 once it is over."""
        return self.began_s + self.total_s - self.clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return self.clock() - self.began_s


@dataclass(frozen=True)
class Tried:
    """A configuration with the response time that its chooser saw, in milliseconds."""

    config: Config
    response_ms: float


def best_of(tried: list[Tried]) -> Config | None:
    """The configuration of the shortest response; None of nothing."""
    return min(tried, key=lambda one: one.response_ms).config if tried else None
