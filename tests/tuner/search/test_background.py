"""Finalists are measured quiet and beside a busy neighbour by turns, and ranked by the stated mix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from profiles.records import Measurement as MeasurementKey
from profiles.vocabulary import Objective, TrialStatus
from tests.support.surface import FakeClock, SurfaceRunner
from tuner.engines.base import BOTH_PHASES
from tuner.errors import WorkerError
from tuner.events import Event
from tuner.search.background import (
    FINALISTS,
    ByTurns,
    Finals,
    apart,
    file_rounds,
    finalists,
    is_busy,
    mixed,
    mixed_value,
)
from tuner.search.budget import Budget
from tuner.search.ledger import Estimate

RESPONSE = Objective("response_ms")
RATE = Objective("decode_tps", "maximize")


class Setting:
    """Finals of a four-CPU machine on the simulated surface; `bad` says what crashes beside the neighbour."""

    def __init__(self, space: Any, *, share: float = 0.5, total_s: float = 1000.0, bad: Any = None) -> None:
        self.space = space
        self.clock = FakeClock()
        self.events: list[Event] = []
        self.trials: list[Any] = []
        self.kept: list[Any] = []

        def fault(config: Any) -> None:
            if bad is not None and self.bench.neighbours and bad(config):
                raise WorkerError(TrialStatus.CRASH, "SIGSEGV")

        self.bench = SurfaceRunner(space, self.clock, noise=0.002, fault=fault)
        self.runner = ByTurns(self.bench, self.bench, self.beside)
        self.finals = Finals(
            space,
            RESPONSE,
            share,
            runner=self.runner,
            recorder=SimpleNamespace(
                begin=lambda config: len(self.trials),
                finish=lambda trial, config, status, *rest: self.trials.append((config, status, rest[-1])),
            ),
            keep=lambda config, rounds: self.kept.extend(rounds),
            judge=SimpleNamespace(feasible=lambda _: True, known_bad=lambda _: False),
            budget=Budget.begin(self.clock, total_s),
            observer=self.events.append,
        )
        self.baseline = space.default("simulated")
        self.leaders = [
            self.estimate(space.make("simulated", variant, {"n_threads": 4, "n_threads_batch": 4}))
            for variant in ("q8_0", "bf16")
        ]

    @contextmanager
    def beside(self, config: Any) -> Iterator[None]:
        self.bench.neighbours = 1
        try:
            yield
        finally:
            self.bench.neighbours = 0

    def estimate(self, config: Any) -> Estimate:
        ttft_ms, itl_ms = self.bench.true_ms(config)
        value = self.bench.response_ms(config)
        return Estimate(config, value, value, ttft_ms, itl_ms, 5)

    def mixed_ms(self, config: Any, share: float) -> float:
        quiet = self.bench.response_ms(config)
        with self.beside(config):
            return (1 - share) * quiet + share * self.bench.response_ms(config)

    def run(self) -> list[Estimate]:
        tried = {self.baseline, *(leader.config for leader in self.leaders)}
        return self.finals.run(self.baseline, self.leaders, tried.__contains__)


def test_the_mix_weighs_times():
    assert mixed(RESPONSE, 100.0, 300.0, 0.5) == 200.0
    assert mixed(RESPONSE, 100.0, 300.0, 0.25) == 150.0
    # Half of the time at 10 and half at 30 tokens/s: a token takes (100 + 33.3) / 2 ms.
    assert mixed(RATE, 10.0, 30.0, 0.5) == pytest.approx(15.0)


def test_both_blocks_run_in_one_process_by_turns(space):
    setting = Setting(space)
    config = setting.leaders[0].config
    order = []
    for _ in range(4):
        measured = setting.runner.measure(config, rounds=2, kind="full", fresh=True)
        order.append([is_busy(r) for r in measured.rounds])
        quiet, busy = apart(measured.rounds)
        assert len(quiet) == len(busy) == 2
        value = mixed_value(RESPONSE, space.workload, measured.rounds, 0.5)
        assert value == pytest.approx(setting.mixed_ms(config, 0.5), rel=0.02)
    first, second = [False, False, True, True], [True, True, False, False]
    assert order == [first, first, second, second]
    # Started once a measurement, and quiet: the block beside the neighbour is never the one that loads.
    assert setting.bench.measured[:2] == [(config, BOTH_PHASES, 2)] * 2
    assert [rounds for _, _, rounds in setting.bench.measured] == [2, 2, 2, 2, 0, 2, 2, 0, 2, 2]


def test_what_matters_under_load_is_among_the_finalists(space):
    setting = Setting(space)
    found = finalists(space, [leader.config for leader in setting.leaders], setting.baseline)
    leader = setting.leaders[0].config
    assert found[:3] == [setting.baseline, leader, setting.leaders[1].config]
    assert len(found) == len(set(found)) <= FINALISTS
    for change in (
        {"n_threads": 3},
        {"n_threads": 3, "n_threads_batch": 3},
        {"n_threads": 1},
        {"wait_policy": "passive"},
        {"wait_policy": "short_spin"},
        {"n_threads": 3, "wait_policy": "passive"},
    ):
        assert space.make("simulated", leader.variant, {**leader.as_dict(), **change}) in found, change


def test_the_winner_leaves_a_cpu_to_the_neighbour(space):
    setting = Setting(space)
    ranked = setting.run()
    best = ranked[0].config
    assert (best.variant, best.get("n_threads")) == ("q8_0", 3)
    assert ranked[0].value == pytest.approx(setting.mixed_ms(best, 0.5), rel=0.02)
    assert [e.cost for e in ranked] == sorted(e.cost for e in ranked)
    assert setting.bench.neighbours == 0


def test_the_share_decides(space):
    """Almost never beside a neighbour: the fastest on a quiet machine stays."""
    assert Setting(space, share=0.001).run()[0].config.get("n_threads") == 4


def test_finalists_that_the_search_did_not_try_become_trials_by_their_quiet_rounds(space):
    setting = Setting(space)
    setting.run()
    tried = [config for config, _, _ in setting.trials]
    assert tried
    assert len(tried) == len(set(tried))
    assert not {setting.baseline, *(leader.config for leader in setting.leaders)} & set(tried)
    for _, status, measured in setting.trials:
        assert status is TrialStatus.COMPLETE
        assert not any(map(is_busy, measured.rounds))
    assert any(map(is_busy, setting.kept))


def test_a_finalist_that_fails_beside_the_neighbour_is_left_out(space):
    setting = Setting(space, bad=lambda config: config.get("n_threads") == 3)
    ranked = setting.run()
    assert all(e.config.get("n_threads") != 3 for e in ranked)
    assert "SIGSEGV" in "".join(event.message for event in setting.events)
    assert TrialStatus.CRASH in [status for _, status, _ in setting.trials]
    assert setting.bench.neighbours == 0


def test_where_nothing_can_be_measured_the_leaders_stay(space):
    setting = Setting(space, bad=lambda _: True)
    assert setting.run() == setting.leaders


def test_without_time_only_the_default_and_the_first_leader_are_looked_at(space):
    setting = Setting(space, total_s=0.5)
    setting.clock.now_s = 0.5
    setting.run()
    assert {config for config, _, _ in setting.bench.measured} == {
        setting.baseline,
        setting.leaders[0].config,
    }


def test_busy_blocks_of_pairs_are_short_where_full_ones_do_not_fit(space):
    roomy, tight = Setting(space), Setting(space, total_s=60.0)
    for setting in (roomy, tight):
        setting.run()
    worst = roomy.leaders[0]
    plan = roomy.finals.plan(worst, worst, 0.5)
    assert (plan.rounds, roomy.runner.busy_kind) == (1, None)
    quiet_s = 2 * worst.value / 1000
    assert plan.pair_s > 1.0 + quiet_s * 3
    tight.clock.now_s = 50.0
    short = tight.finals.plan(worst, worst, 0.5)
    assert tight.runner.busy_kind == "short"
    assert short.pair_s < plan.pair_s


def test_rounds_beside_the_neighbour_are_filed_apart(space):
    setting = Setting(space)
    config = setting.leaders[0].config
    rounds = setting.runner.measure(config, rounds=1).rounds
    filed: list[Any] = []
    store = SimpleNamespace(add_rounds=lambda key, some: filed.append((key.conditions, len(some))))
    file_rounds(store, MeasurementKey("f", "1", config.variant, config, space.workload), rounds)
    assert filed == [("quiet", 1), ("background", 1)]
