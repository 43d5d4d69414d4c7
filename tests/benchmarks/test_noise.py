"""The instruments of the noise benchmarks: known bursts, a comparison with itself, drift."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.benchmarks.aa import LIMIT, false_share, made_up, recorded, replays, verdict_of
from tests.benchmarks.bench_bursts import detector_row
from tests.benchmarks.load import Load
from tuner.process import alive


def test_the_schedule_of_bursts_is_known():
    load = Load(1.0, 4.0)
    assert load.busy_between(0.0, 8.0) == 2.0
    assert load.busy_between(0.5, 2.0) == 0.5
    assert load.busy_between(1.5, 3.5) == 0.0
    assert load.busy_between(3.0, 4.25) == pytest.approx(0.25)
    assert Load.steady().busy_between(10.0, 11.0) == pytest.approx(1.0)


def test_its_processes_end_with_it():
    with Load(0.01, 0.02, processes=2) as load:
        pids = [child.pid for child in load.children]
        assert all(map(alive, pids))
    assert not any(map(alive, pids))


def test_a_comparison_with_itself_seldom_names_a_winner():
    for pairs in (6, 7, 8, 16):
        assert false_share(replays(300, pairs, seed=1)) <= LIMIT + 0.015, pairs


def test_a_real_difference_is_found_by_the_same_replay():
    """Else the false share would be low for the wrong reason."""

    def uneven(rng: random.Random):
        values = made_up(rng)
        # The order of ABBA: the second configuration takes a fifth longer.
        while True:
            for factor in (1.0, 1.2, 1.2, 1.0):
                yield factor * next(values)

    found = replays(50, 16, 0, uneven)
    assert found["a"] > 40
    assert found["b"] == 0


def test_recorded_values_are_drawn_with_their_neighbours():
    rng = random.Random(0)
    values = recorded([[1.0, 2.0, 3.0], [7.0, 8.0]], rng)
    drawn = [next(values) for _ in range(40)]
    assert set(zip(drawn[::2], drawn[1::2], strict=True)) == {(1.0, 2.0), (2.0, 3.0), (7.0, 8.0)}
    assert verdict_of(recorded([[5.0, 5.0]], rng), 16) == "no difference"
    assert false_share(Counter({"a": 1, "b": 1, "not resolved": 8})) == 0.2


def test_caught_missed_and_false_flags_are_told_apart():
    delay = frozenset({"run delay"})
    rounds = [
        (100.0, 0.05, delay),
        (300.0, 0.05, frozenset()),
        (100.0, 0.0, delay),
        (100.0, 0.0, frozenset()),
    ]
    row = detector_row("bursts", rounds, 100.0, "command")
    assert (row["disturbed"], row["caught"], row["missed"]) == (2, 1, 1)
    assert (row["false_flags"], row["undisturbed"]) == (1, 2)
    assert row["missed_slowdown"] == 3.0
    assert (row["by"]["run delay"], row["by"]["canary"]) == (1, 0)
