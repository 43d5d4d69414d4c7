"""Time that a search may take, and what is kept back for confirming."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

Clock = Callable[[], float]
"""Seconds on a clock that never goes back."""


@dataclass(frozen=True)
class Budget:
    """A start and a length in seconds on an injected clock."""

    clock: Clock
    started_s: float
    total_s: float

    @classmethod
    def begin(cls, clock: Clock, total_s: float) -> Budget:
        """A budget that starts now."""
        return cls(clock, clock(), total_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started_s

    @property
    def left_s(self) -> float:
        """Seconds until the end; never negative."""
        return max(0.0, self.total_s - self.elapsed_s)

    def shortened(self, share: float) -> Budget:
        """A part of it, from the same start."""
        return replace(self, total_s=self.total_s * share)


LONGEST_CONFIRMATION = 0.65
SHORTEST_CONFIRMATION = 0.25
PROVISIONAL_PAIRS = 6
CONFIRMED_PAIRS = 16
"""As many as the last look takes; a search that can't afford them ends provisional."""


def confirmation_share(total_s: float, pair_s: float) -> float:
    """The share of the budget to keep for confirming with pairs of `pair_s` seconds.

    Room for every look where that leaves most of the time to the search, else for the provisional look,
    bounded so that neither starves the other.
    """
    every, few = (1.08 * pair_s * pairs / total_s for pairs in (CONFIRMED_PAIRS, PROVISIONAL_PAIRS))
    return every if every < 0.5 else min(LONGEST_CONFIRMATION, max(SHORTEST_CONFIRMATION, few))
