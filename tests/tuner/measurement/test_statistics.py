"""Intervals, verdicts and bootstraps against brute force, properties and simulation."""

from __future__ import annotations

import itertools
import math
import statistics as stdlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.vocabulary import Interval
from tuner.measurement import statistics
from tuner.measurement.looks import LOOK_CONFIDENCE, LOOKS

# Multiples of 1/64: sums and halves are exact, so that order relations are not blurred by rounding.
numbers = st.integers(-64_000, 64_000).map(lambda i: i / 64)
samples = st.lists(numbers, min_size=1, max_size=14)


def test_spread_estimates_a_normal_deviation_and_ignores_outliers():
    values = np.random.default_rng(3).normal(5.0, 2.0, 4000)
    assert statistics.spread(list(values)) == pytest.approx(2.0, rel=0.06)
    values[:200] = 1e6
    assert statistics.spread(list(values)) == pytest.approx(2.0, rel=0.15)


@settings(deadline=None)
@given(samples)
def test_hodges_lehmann_agrees_with_brute_force(values):
    walsh = [(values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values))]
    assert statistics.hodges_lehmann(values) == pytest.approx(stdlib.median(walsh))


@settings(deadline=None)
@given(samples, numbers)
def test_interval_moves_with_the_data_and_mirrors(values, shift):
    found = statistics.signed_rank_interval(values)
    moved = statistics.signed_rank_interval([v + shift for v in values])
    mirrored = statistics.signed_rank_interval([-v for v in values])
    assert min(values) <= found.low <= found.estimate <= found.high <= max(values)
    assert (moved.low, moved.high) == pytest.approx((found.low + shift, found.high + shift))
    assert (mirrored.low, mirrored.high) == (-found.high, -found.low)


@pytest.mark.parametrize(("n", "confidence"), [(6, 0.96875), (8, 0.9921875)])
def test_method_numbers_min_to_max(n, confidence):
    values = [float(2**i) for i in range(n)]
    found = statistics.signed_rank_interval(values, confidence)
    assert (found.low, found.high, found.confidence) == (1.0, 2.0 ** (n - 1), confidence)


def test_too_few_values_say_so_with_a_lower_confidence():
    found = statistics.signed_rank_interval([1.0, 2.0, 4.0], 0.99)
    assert (found.low, found.high, found.confidence) == (1.0, 4.0, 0.75)
    assert statistics.signed_rank_interval([3.0]).confidence == 0.0


@pytest.mark.parametrize("n", range(1, 11))
def test_interval_inverts_the_signed_rank_test_by_brute_force(n):
    """Every sign pattern of n distinct magnitudes is equally likely: count how many cover the centre."""
    magnitudes = [1.0 + i + 0.01 * i * i for i in range(n)]
    for confidence in (0.5, 0.8, 0.9, 0.95, 0.99):
        covered, stated = 0, set()
        for signs in itertools.product((-1.0, 1.0), repeat=n):
            found = statistics.signed_rank_interval(
                [s * m for s, m in zip(signs, magnitudes, strict=True)], confidence
            )
            covered += found.low <= 0.0 <= found.high
            stated.add(found.confidence)
        assert covered / 2**n == pytest.approx(stated.pop())
        assert not stated


def _pair_log_ratios(rng, draws, n, outliers_a, outliers_b):
    """One log ratio a pair of equal arms; a pair's time is the mean of two log-normal rounds."""

    def arm(outliers):
        rounds = np.exp(rng.normal(0.0, 0.03, (draws, n, 2)))
        return np.where(rng.random(rounds.shape) < outliers, 10 * rounds, rounds).mean(axis=2)

    return np.log(arm(outliers_a) / arm(outliers_b))


@pytest.mark.parametrize("outliers", [0.0, 0.1])
@pytest.mark.parametrize("n", [8, 12])
def test_nominal_99_percent_covers_over_10000_draws(outliers, n):
    ratios = _pair_log_ratios(np.random.default_rng(n), 10_000, n, outliers, outliers)
    covered = 0
    for row in ratios:
        found = statistics.signed_rank_interval(row, 0.99)
        covered += found.low <= 0.0 <= found.high
    assert covered >= 9_850


def test_looks_keep_their_union_bound():
    assert statistics.achieved_error() == pytest.approx(0.0209, abs=0.0001)
    assert statistics.achieved_error((8,)) == 2 / 256
    missed = 0
    for row in _pair_log_ratios(np.random.default_rng(1), 4000, 16, 0.1, 0.1):
        intervals = [statistics.ratio_interval(row[:n], LOOK_CONFIDENCE) for n in LOOKS]
        missed += any(not i.low <= 1.0 <= i.high for i in intervals)
    # 4000 draws: the bound plus three standard errors.
    assert missed / 4000 <= 0.021 + 3 * math.sqrt(0.021 / 4000)


def test_look_interval_pays_for_earlier_looks():
    row = [0.01 * i for i in range(-4, 12)]
    stated = [statistics.look_interval(row[:n]).confidence for n in LOOKS]
    assert stated == pytest.approx([0.9922, 0.9854, 0.9791], abs=0.0001)
    assert statistics.look_interval(row[:6]).confidence == 0.96875


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.80, 0.90, "a"),
        (1.10, 1.30, "b"),
        (0.99, 1.01, "no difference"),
        (0.985, 0.995, "no difference"),
        (0.97, 1.01, "not resolved"),
        (0.97, 0.99, "a"),
        (0.9, 1.2, "not resolved"),
    ],
)
def test_verdict_names_the_better_arm(low, high, expected):
    ratio = Interval(math.sqrt(low * high), low, high, 0.99)
    swapped = {"a": "b", "b": "a"}.get(expected, expected)
    assert statistics.verdict(ratio) == expected
    assert statistics.verdict(ratio, direction="maximize") == swapped
    assert statistics.verdict(Interval(1 / ratio.estimate, 1 / high, 1 / low, 0.99)) == swapped


def test_no_worse_must_be_shown():
    better, equal, worse = ([c + 0.001 * i for i in range(-4, 4)] for c in (-0.05, 0.0, 0.03))
    noisy = [0.05 * i for i in range(-4, 4)]
    assert statistics.shown_no_worse(better)
    assert statistics.shown_no_worse(equal)
    assert not statistics.shown_no_worse(worse)
    assert not statistics.shown_no_worse(noisy)
    assert not statistics.shown_no_worse(equal[:3])


def test_no_worse_errs_at_its_level_at_the_margin():
    rng = np.random.default_rng(5)
    shifted = math.log1p(0.015) + rng.normal(0.0, 0.02, (4000, 10))
    errors = sum(statistics.shown_no_worse(row) for row in shifted) / 4000
    assert 0.03 <= errors <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000)


def test_pairs_needed_reach_their_power():
    n = statistics.pairs_needed(0.03, 1.03, 0.95)
    rng = np.random.default_rng(7)
    draws = rng.normal(math.log(1.03), 0.03, (1500, n))
    found = sum(statistics.signed_rank_interval(row, 0.95).low > 0 for row in draws) / 1500
    assert 0.72 <= found <= 0.92
    assert statistics.pairs_needed(0.001, 1.5, 0.99) == 8
    assert statistics.pairs_needed(0.03, 1 / 1.03, 0.95) == n


def test_pairs_to_resolve_are_those_of_the_easier_question():
    wide = [0.05 * i for i in range(-4, 4)]
    shifted = [value + 0.3 for value in wide]
    assert statistics.pairs_to_resolve(wide[:4]) is None
    needed = statistics.pairs_to_resolve(wide)
    assert needed is not None
    assert needed > 100
    assert statistics.pairs_to_resolve(shifted) < needed
    # As many as are needed to show it do show it, about four times of five.
    rng = np.random.default_rng(13)
    n = statistics.pairs_to_resolve(list(rng.normal(0.0, 0.01, 400)))
    draws = rng.normal(0.0, 0.01, (1000, n))
    says = [statistics.verdict(statistics.ratio_interval(row, 0.99)) for row in draws]
    assert 0.6 <= says.count("no difference") / 1000 <= 0.95


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=200), st.sampled_from(["mean", "median"]))
def test_bootstrap_is_repeatable_and_stays_within_the_data(values, statistic):
    first = statistics.block_bootstrap(values, statistic=statistic, draws=50)
    assert first == statistics.block_bootstrap(values, statistic=statistic, draws=50)
    assert min(values) - 1e-6 <= first.low <= first.high <= max(values) + 1e-6


def test_bootstrap_handles_fewer_values_than_a_block():
    found = statistics.block_bootstrap([float(i % 5) for i in range(30)])
    assert found.low < found.estimate == 2.0 < found.high


def test_bootstrap_covers_the_mean_of_dependent_skewed_values():
    """1024 log-normal values, correlated from one to the next; single-value blocks would be too narrow."""
    rng = np.random.default_rng(11)
    draws = 400
    noise = rng.normal(size=(draws, 1024 + 50))
    walk = np.zeros_like(noise)
    for i in range(1, noise.shape[1]):
        walk[:, i] = 0.7 * walk[:, i - 1] + noise[:, i]
    values = np.exp(0.5 * walk[:, 50:])
    truth = math.exp(0.125 / (1 - 0.49))
    blocks = [statistics.block_bootstrap(row, draws=400) for row in values]
    single = [statistics.block_bootstrap(row, block=1, draws=400) for row in values]
    # Sixteen blocks are few: docs/statistics.md states the coverage that is left.
    assert sum(i.low <= truth <= i.high for i in blocks) / draws >= 0.88
    assert sum(i.low <= truth <= i.high for i in single) / draws <= 0.75


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=10))
def test_ratio_interval_of_equal_arms_is_one(values):
    found = statistics.ratio_interval(statistics.log_ratios(values, values))
    assert (found.estimate, found.low, found.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("bad", [[], [1.0, math.nan], [math.inf]])
def test_s07_what_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match=r"no values|must be finite"):
        statistics.signed_rank_interval(bad)


def test_log_ratios_refuse_what_does_not_pair():
    with pytest.raises(ValueError, match="2 and 1 values"):
        statistics.log_ratios([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="positive"):
        statistics.log_ratios([1.0], [0.0])
