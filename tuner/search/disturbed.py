"""Whether one of two sides is sensitive to background load: disturbed more often than the other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from profiles.vocabulary import RoundSamples
from tuner.measurement.asked import ABORTED
from tuner.search.load import DISTURBED

SIGNIFICANT = 0.01
"""Of comparisons of equals so few may say it."""


@dataclass(frozen=True)
class Count:
    """How many of some rounds were disturbed, dropped for it or not."""

    rounds: int = 0
    disturbed: int = 0

    def plus(self, rounds: Sequence[RoundSamples]) -> Count:
        """These rounds too."""
        return Count(self.rounds + len(rounds), self.disturbed + sum(map(_is_disturbed, rounds)))


def is_sensitive(one: Count, other: Count) -> bool:
    """Whether `one` was disturbed more often than chance makes it.

    Fisher's exact test (Statistical Methods for Research Workers, 1934), one-sided: given how many rounds of
    both were disturbed, the probability that so many or more of them are of `one` is hypergeometric.
    """
    rounds, disturbed = one.rounds + other.rounds, one.disturbed + other.disturbed
    tail = sum(
        comb(one.rounds, k) * comb(other.rounds, disturbed - k)
        for k in range(one.disturbed, min(one.rounds, disturbed) + 1)
    )
    return tail / comb(rounds, disturbed) < SIGNIFICANT


def _is_disturbed(samples: RoundSamples) -> bool:
    named = any(name == ABORTED or name.startswith(DISTURBED) for name in samples.facts)
    return named or samples.dropped is not None
