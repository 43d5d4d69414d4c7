"""Whether something got slower: a CUSUM of log ratios, and the arithmetic of one ABBA set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

FEWEST_SPREAD = 0.01
"""A smaller spread of log ratios is luck: no two sets of a machine agree better for long."""


@dataclass(frozen=True)
class Chart:
    """Page's one-sided CUSUM of log ratios, now over reference, so that above 0 is slower.

    `S = max(0, S + x - slack)`, an alarm while `S > limit` (Page 1954). `slack` is half of the smallest shift
    that is looked for, which makes the chart best at that shift.
    """

    slack: float
    limit: float
    sum: float = 0.0

    def add(self, log_ratio: float) -> Chart:
        """The chart after one more value."""
        return replace(self, sum=max(0.0, self.sum + log_ratio - self.slack))

    @property
    def is_alarmed(self) -> bool:
        """Whether the values so far are hardly chance."""
        return self.sum > self.limit


def chart(spread: float, least: float, false_alarm_every: float, total: float = 0.0) -> Chart:
    """The chart that looks for a shift of `least` in values of standard deviation `spread`.

    `least` is a share (0.05: 5 % slower). Its limit is the lowest with, on the average, `false_alarm_every`
    values between two false alarms, and at least the slack, so that one value alone must exceed `least`.
    `total` is the sum it goes on from.
    """
    slack = math.log1p(least) / 2
    return Chart(slack, max(slack, _limit(slack, max(spread, FEWEST_SPREAD), false_alarm_every)), total)


@cache
def _limit(slack: float, spread: float, wanted: float) -> float:
    low, high = 0.0, 20 * spread
    while high - low > 1e-4 * spread:
        middle = (low + high) / 2
        if run_length(slack, middle, spread) < wanted:
            low = middle
        else:
            high = middle
    return high


def run_length(slack: float, limit: float, spread: float) -> float:
    """Values until a false alarm, on the average, in independent normal values around 0.

    Siegmund's approximation (Sequential Analysis, 1985, ch. 2): with d = -slack/spread and
    b = limit/spread + 1.166, it is (exp(-2 d b) + 2 d b - 1) / (2 d^2).
    """
    drift, b = -slack / spread, limit / spread + 1.166
    exponent = -2 * drift * b
    if exponent > 700:
        return math.inf
    return (math.exp(exponent) - exponent - 1) / (2 * drift**2)


@dataclass(frozen=True)
class Abba:
    """One set of fresh processes in the order A B B A: `ratio` is the log of A over B, `level` of B alone."""

    ratio: float
    level: float


def abba(pairs: Sequence[tuple[float, float]]) -> Abba:
    """The set's means from its (A, B) costs, whatever order each pair was run in.

    In the order A B B A a change of the machine that is linear in time cancels in `ratio`: A stands at the
    places 0 and 3, B at 1 and 2. Raises ValueError for an odd number of pairs or a cost that is not positive.
    """
    if not pairs or len(pairs) % 2:
        raise ValueError(f"{len(pairs)} pairs are no ABBA set")
    logs = [(math.log(a), math.log(b)) for a, b in pairs]
    ratio = sum(a - b for a, b in logs) / len(logs)
    return Abba(ratio, sum(b for _, b in logs) / len(logs))


@dataclass(frozen=True)
class Reference:
    """What an ABBA set of the running configuration and its control gives when all is well.

    `ratio` and `level` are means over `pairs` pairs; `spread` is the standard deviation of one pair's log
    ratio; `level` is None until a set was measured.
    """

    ratio: float
    spread: float
    pairs: int
    level: float | None = None

    def with_set(self, found: Abba, pairs: int, most: int, slack: float) -> Reference:
        """The reference with a set that raised no alarm, as long as it rests on fewer than `most` pairs.

        A set that is faster by more than `slack` replaces the level: it was taken in a slow hour.
        """
        level = self.level
        if level is None or found.level < level - slack:
            level = found.level
        if self.pairs >= most:
            return replace(self, level=level)
        share = pairs / (self.pairs + pairs)
        return Reference(
            ratio=self.ratio + share * (found.ratio - self.ratio),
            spread=self.spread,
            pairs=self.pairs + pairs,
            level=level + share * (found.level - level),
        )
