"""A side that other work disturbs more often than the other one is said to be sensitive to load."""

import math

import pytest

from profiles.vocabulary import RoundSamples
from tuner.measurement.asked import ABORTED
from tuner.search.disturbed import Count, is_sensitive


def a_round(**more) -> RoundSamples:
    return RoundSamples("full", (1.0,), ((1.0,),), (2.0,), 2.0, **more)


def test_dropped_accepted_and_aborted_rounds_count():
    rounds = [
        a_round(),
        a_round(dropped="steal: 20 ms"),
        a_round(facts={"disturbed.steal": 1.0}),
        a_round(facts={ABORTED: 1.0}),
        a_round(facts={"wall_ns": 1e6}),
    ]
    assert Count().plus(rounds) == Count(5, 3)


def test_only_a_significant_difference_counts():
    assert is_sensitive(Count(12, 9), Count(12, 1))
    assert not is_sensitive(Count(12, 1), Count(12, 9))
    assert not is_sensitive(Count(12, 6), Count(12, 3))
    assert not is_sensitive(Count(), Count())
    assert not is_sensitive(Count(3, 3), Count(3, 0))


@pytest.mark.parametrize(("rounds", "share"), [(8, 0.3), (16, 0.5), (32, 0.1)])
def test_equals_are_said_to_be_sensitive_in_at_most_one_comparison_of_a_hundred(rounds: int, share: float):
    """Summed over every outcome of two equal sides, by their binomial probabilities."""
    odds = [math.comb(rounds, k) * share**k * (1 - share) ** (rounds - k) for k in range(rounds + 1)]
    said = sum(
        odds[one] * odds[other]
        for one in range(rounds + 1)
        for other in range(rounds + 1)
        if is_sensitive(Count(rounds, one), Count(rounds, other))
    )
    assert said <= 0.01
