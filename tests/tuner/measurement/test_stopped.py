"""A round during which a service stopped the search does not count, and has its turn again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from profiles.vocabulary import Config
from tuner import clock
from tuner.measurement.bench import RETRIES, Bench
from tuner.measurement.isolation import Worker

MakeBench = Callable[..., Bench]


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds for which each next round of the workload is stopped."""
    coming: list[float] = []
    total = [0.0]
    original = Worker.request

    def stopped(self: Worker, op: str, payload: Mapping[str, object], *args: float, **named: float) -> object:
        if op == "round" and payload["output_tokens"] != 4 and coming:
            total[0] += coming.pop(0)
        return original(self, op, payload, *args, **named)

    monkeypatch.setattr(Worker, "request", stopped)
    monkeypatch.setattr(clock, "stopped_s", lambda: total[0])
    return coming


def test_a_stopped_round_is_dropped_by_its_cause(make_bench: MakeBench, default: Config, stops: list[float]):
    stops += [3.25, 0.0]
    measured = make_bench().measure(default, rounds=1)
    assert [r.dropped is None for r in measured.rounds] == [False, True]
    assert "stopped: for 3.2 s" in (measured.rounds[0].dropped or "")


def test_it_costs_none_of_the_repetitions(make_bench: MakeBench, default: Config, stops: list[float]):
    stops += [1.0] * (RETRIES + 3)
    measured = make_bench().measure(default, rounds=2)
    assert sum(r.dropped is None for r in measured.rounds) == 2
    assert len(measured.rounds) == RETRIES + 5
