"""Pairs of processes: the fewest are run even where the budget has just ended."""

from __future__ import annotations

import math

from profiles.vocabulary import Config
from tests.support.surface import FakeClock, SurfaceRunner
from tuner.search.budget import Budget
from tuner.search.pairs import Plan, run_pairs
from tuner.search.space import Space


def test_the_fewest_pairs_are_run_where_the_looks_took_all_of_the_budget(space: Space) -> None:
    clock = FakeClock()
    default = space.default("simulated")
    sides: tuple[Config, Config] = (default, default.with_settings(n_threads=1))
    budget = Budget.begin(clock, 20.0)
    clock.now_s = 20.5
    kept: list[tuple[float, float]] = []
    decision = run_pairs(
        SurfaceRunner(space, clock),
        sides,
        lambda rounds: rounds[0].wall_ms,
        lambda values: math.log(values[0] / values[1]),
        lambda logs, final: list(logs) if final else None,
        plan=Plan(rounds=1, pair_s=5.0),
        budget=budget,
        fewest=1,
        keep=lambda values, _measured: kept.append(values),
        observer=lambda _event: None,
    )
    assert len(decision.found) == 1
    assert list(decision.pairs) == kept
