"""Robust estimates and exact intervals for few, noisy samples.

Formulas, sources and what holds under which assumption: docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from profiles.vocabulary import Interval
from tuner.measurement.looks import LOOK_CONFIDENCE, LOOKS

Floats = npt.NDArray[np.float64]
Verdict = Literal["a", "b", "no difference", "not resolved"]

NO_DIFFERENCE_MARGIN = 0.02
FEWEST_FOR_A_SPREAD = 5
NO_WORSE_MARGIN = 0.015
_NORMAL_MAD = 1.4826
"""Median absolute deviation -> standard deviation, for normal samples."""


def spread(values: Sequence[float]) -> float:
    """1.4826 x the median absolute deviation: estimates a normal's standard deviation, ignores outliers."""
    samples = _checked(values)
    return _NORMAL_MAD * float(np.median(np.abs(samples - np.median(samples))))


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the Walsh averages (Hodges and Lehmann 1963)."""
    return float(np.median(_walsh_averages(_checked(values))))


def signed_rank_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The Hodges-Lehmann estimate with the exact limits that invert Wilcoxon's signed-rank test.

    Exact for independent values, symmetric about one centre; ties only widen it. The interval's
    `confidence` is what it reaches, at least the asked one where n allows that; with fewer values it
    runs from the smallest to the largest and its `confidence`, 1 - 2^(1-n), is below the asked one.
    """
    averages = np.sort(_walsh_averages(_checked(values)))
    n = len(values)
    rank = _critical_rank(n, 1.0 - confidence)
    error = 2.0 * _null_tail(n)[rank]
    return Interval(
        estimate=float(np.median(averages)),
        low=float(averages[rank]),
        high=float(averages[len(averages) - 1 - rank]),
        confidence=max(0.0, 1.0 - error),
    )


def log_ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """log(a/b), pair by pair; raises ValueError for other lengths or a value that is not positive."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values do not pair")
    first, second = _checked(a), _checked(b)
    if min(first.min(), second.min()) <= 0:
        raise ValueError("a ratio needs positive values")
    return [float(x) for x in np.log(first) - np.log(second)]


def ratio_interval(log_ratio_values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of a ratio from one log ratio per process pair, back on the ratio's own scale."""
    found = signed_rank_interval(log_ratio_values, confidence)
    return Interval(math.exp(found.estimate), math.exp(found.low), math.exp(found.high), found.confidence)


def look_interval(log_ratio_values: Sequence[float], looks: Sequence[int] = LOOKS) -> Interval:
    """The ratio's interval at a look, its confidence lowered for the looks before (union bound).

    With 8, 12, 16 pairs the confidence is 99.2 %, 98.5 %, 97.9 %.
    """
    n = len(log_ratio_values)
    found = ratio_interval(log_ratio_values, LOOK_CONFIDENCE)
    earlier = achieved_error([look for look in looks if look < n])
    return Interval(found.estimate, found.low, found.high, max(0.0, found.confidence - earlier))


def achieved_error(looks: Sequence[int] = LOOKS) -> float:
    """At most this share of sequences of looks has an interval that misses the truth at any look."""
    return sum(2.0 * _null_tail(n)[_critical_rank(n, 1.0 - LOOK_CONFIDENCE)] for n in looks)


def verdict(
    ratio: Interval,
    margin: float = NO_DIFFERENCE_MARGIN,
    direction: Literal["minimize", "maximize"] = "minimize",
) -> Verdict:
    """What an interval of the ratio a/b says: "a" or "b" names the better one.

    "no difference" comes first: the whole interval lies within 1/(1+margin) .. 1+margin, even if it
    excludes 1. An arm wins when the interval excludes 1 on its side: with `direction` "minimize" (times)
    a ratio below 1 is a's, with "maximize" (rates) one above. All else is "not resolved".
    """
    if 1.0 / (1.0 + margin) <= ratio.low and ratio.high <= 1.0 + margin:
        return "no difference"
    if ratio.high < 1.0:
        return "a" if direction == "minimize" else "b"
    if ratio.low > 1.0:
        return "b" if direction == "minimize" else "a"
    return "not resolved"


def shown_no_worse(
    log_ratio_values: Sequence[float], margin: float = NO_WORSE_MARGIN, confidence: float = 0.95
) -> bool:
    """Whether a candidate is shown to be at most `margin` slower than another.

    Takes log ratios of times, candidate over other (for rates: other over candidate). A one-sided
    signed-rank test of non-inferiority; too few pairs for the confidence show nothing.
    """
    found = _one_sided(log_ratio_values, confidence)
    return found is not None and found.high <= math.log1p(margin)


def pairs_needed(pair_spread: float, ratio: float, confidence: float = 0.99, power: float = 0.8) -> int:
    """Process pairs that tell `ratio` from 1 with probability `power`, about.

    `pair_spread` is the spread of the log ratios. Normal approximation with Guenther's (1981) small-sample
    term, over the signed-rank test's efficiency 3/pi; never fewer than the exact test needs at all.
    """
    if ratio <= 0 or ratio == 1:
        raise ValueError(f"ratio {ratio:g}: must be positive and not 1")
    fewest = math.ceil(1 - math.log2(1 - confidence))
    normal = NormalDist()
    critical = normal.inv_cdf((1 + confidence) / 2)
    deviations = (critical + normal.inv_cdf(power)) * pair_spread / math.log(ratio)
    return max(fewest, math.ceil(deviations**2 * math.pi / 3 + critical**2 / 2))


def pairs_to_resolve(
    log_ratio_values: Sequence[float], margin: float = NO_DIFFERENCE_MARGIN, confidence: float = 0.99
) -> int | None:
    """About how many pairs in all would tell two arms apart, or show that they differ by less than `margin`.

    The easier of both, judged by the centre and spread so far; None below `FEWEST_FOR_A_SPREAD` pairs, whose
    spread says nothing.
    """
    if len(log_ratio_values) < FEWEST_FOR_A_SPREAD:
        return None
    centre = abs(hodges_lehmann(log_ratio_values))
    # From 1 to the centre, or from the centre to where the margin ends.
    distance = max(centre, math.log1p(margin) - centre)
    return pairs_needed(spread(log_ratio_values), math.exp(distance), confidence)


def block_bootstrap(
    values: Sequence[float],
    block: int = 64,
    statistic: Literal["mean", "median"] = "mean",
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic of dependent values: circular blocks (Politis and Romano 1992).

    Deterministic for a seed. Fewer than 8 blocks would know no variance, so short sequences use blocks of
    n // 8 values, at least 1.
    """
    samples = _checked(values)
    n = len(samples)
    length = min(block, max(1, n // 8))
    count = math.ceil(n / length)
    starts = np.random.default_rng(seed).integers(0, n, size=(draws, count))
    circular = np.concatenate([samples, samples[: length - 1]])
    if statistic == "mean":
        sums = np.convolve(circular, np.ones(length), mode="valid")
        drawn = sums[starts].sum(axis=1) / (count * length)
        estimate = float(samples.mean())
    else:
        blocks = np.lib.stride_tricks.sliding_window_view(circular, length)
        drawn = np.array([np.median(blocks[row]) for row in starts])
        estimate = float(np.median(samples))
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    # Rounding must not put the estimate outside of a degenerate interval.
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate), confidence)


def _checked(values: Sequence[float]) -> Floats:
    samples = np.asarray(values, dtype=np.float64)
    if samples.ndim != 1 or not len(samples):
        raise ValueError("no values: a statistic needs at least one")
    if not np.isfinite(samples).all():
        raise ValueError(f"value {samples[~np.isfinite(samples)][0]}: all must be finite")
    return samples


def _walsh_averages(samples: Floats) -> Floats:
    # Halved before the sum, so that the largest floats do not overflow.
    rows, columns = np.triu_indices(len(samples))
    averages: Floats = samples[rows] / 2 + samples[columns] / 2
    return averages


def _one_sided(log_ratio_values: Sequence[float], confidence: float) -> Interval | None:
    """Limits that each hold with `confidence`; None where n can't reach that."""
    found = signed_rank_interval(log_ratio_values, 2 * confidence - 1)
    return found if found.confidence >= 2 * confidence - 1 else None


@lru_cache(maxsize=256)
def _null_tail(n: int) -> tuple[float, ...]:
    """P(T <= k) for k = 0 .. n(n+1)/2, T the signed-rank sum of n signs that are fair coins."""
    ways = [1]
    for rank in range(1, n + 1):
        shifted = [0] * rank + ways
        ways = [x + y for x, y in zip(ways + [0] * rank, shifted, strict=True)]
    total, below, tail = 2**n, 0, []
    for count in ways:
        below += count
        tail.append(below / total)
    return tuple(tail)


@lru_cache(maxsize=1024)
def _critical_rank(n: int, error: float) -> int:
    """The largest k with 2 P(T <= k) <= error; 0 where there is none."""
    # The slack forgives the rounding of 1 - confidence; it is far below any step of the distribution.
    allowed = error / 2 + 1e-12
    return max(sum(1 for tail in _null_tail(n) if tail <= allowed) - 1, 0)
