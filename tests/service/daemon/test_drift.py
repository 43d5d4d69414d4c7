"""The chart of log ratios and the arithmetic of one set."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.daemon.drift import Abba, Reference, abba, chart, run_length


def test_a_set_cancels_what_is_linear_in_time():
    drift = [1.0 + 0.1 * place for place in range(4)]
    a_first, b_first, b_second, a_second = (math.exp(value) for value in drift)
    found = abba([(a_first, b_first), (a_second, b_second)])
    assert found.ratio == pytest.approx(0.0)
    assert found.level == pytest.approx(1.15)


@given(factor=st.floats(0.5, 2.0), common=st.floats(0.1, 10.0))
def test_a_set_sees_only_what_is_not_common(factor: float, common: float):
    pairs = [(common * factor, common), (3 * common * factor, 3 * common)]
    assert abba(pairs).ratio == pytest.approx(math.log(factor))


@pytest.mark.parametrize("pairs", [[], [(1.0, 1.0)], [(1.0, 1.0)] * 3])
def test_what_is_no_set_is_refused(pairs: list[tuple[float, float]]):
    with pytest.raises(ValueError, match=f"{len(pairs)} pairs are no ABBA set"):
        abba(pairs)


@pytest.mark.parametrize("spread", [0.01, 0.016, 0.03])
def test_false_alarms_are_as_rare_as_asked(spread: float):
    """Siegmund's formula against the chart itself on independent normal values."""
    draw = random.Random(7).gauss
    values = alarms = 0
    wanted = 100
    for _ in range(300):
        at = chart(spread, 0.05, wanted)
        while not at.is_alarmed and values < 300 * 400:
            at = at.add(draw(0, spread))
            values += 1
        alarms += at.is_alarmed
    assert values / max(alarms, 1) > 0.8 * wanted


@pytest.mark.parametrize("shift", [0.12, 0.2, 0.5])
def test_a_regression_is_found_within_two_values(shift: float):
    draw = random.Random(3).gauss
    for _ in range(500):
        at = chart(0.016, 0.05, 365)
        for _ in range(2):
            at = at.add(shift + draw(0, 0.016))
        assert at.is_alarmed


def test_getting_faster_is_no_alarm():
    at = chart(0.016, 0.05, 365)
    for _ in range(50):
        at = at.add(-0.3)
    assert at.sum == 0.0
    assert not at.is_alarmed


def test_one_value_alone_must_exceed_what_is_looked_for():
    at = chart(0.001, 0.05, 365)
    assert not at.add(math.log(1.049)).is_alarmed
    assert at.add(math.log(1.051)).is_alarmed


def test_run_length_grows_without_end():
    assert run_length(0.025, 10.0, 0.01) == math.inf


def test_a_reference_learns_until_it_rests_on_enough_and_never_from_a_slow_hour():
    first = Reference(0.0, 0.02, 0).with_set(Abba(-0.2, 5.0), 2, 4, slack=0.05)
    assert (first.ratio, first.level, first.pairs) == (-0.2, 5.0, 2)
    second = first.with_set(Abba(-0.1, 5.0), 2, 4, slack=0.05)
    assert second.ratio == pytest.approx(-0.15)
    third = second.with_set(Abba(-0.9, 4.0), 2, 4, slack=0.05)
    assert (third.ratio, third.level) == (second.ratio, 4.0)
