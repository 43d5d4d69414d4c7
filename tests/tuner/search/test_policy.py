"""Mapping and locking are tried once around the winner, and taken only where that is shown to be better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from profiles.vocabulary import Config, Limit, Role, RoundSamples, Setting, TrialStatus
from tests.support.surface import FakeClock
from tuner.engines.base import Dimension, Scope
from tuner.errors import WorkerError
from tuner.measurement.measurement import Measurement
from tuner.search.budget import Budget
from tuner.search.ledger import Estimate, Ledger
from tuner.search.objectives import objective_of
from tuner.search.policy import Policies, neighbours, varies
from tuner.search.space import EngineSpace, Space

MMAP = Dimension("mmap", (True,), True, Scope.LOAD, Role.WEIGHTS)
MLOCK = Dimension("mlock", (False,), False, Scope.LOAD, Role.WEIGHTS)
HUGE = Dimension("huge_pages", (False, True), False, Scope.PROCESS, Role.PLACEMENT)

Speed = Callable[[Config], float]


def with_dimensions(space: Space, *added: Dimension) -> Space:
    (part,) = space.engines
    return replace(space, engines=(EngineSpace(part.engine, part.variants, (*part.dimensions, *added)),))


class Runner:
    """Measures `itl_of` each configuration, a little less precisely each time; mapped files count twice."""

    def __init__(self, itl_of: Speed, broken: frozenset[str], clock: FakeClock) -> None:
        self._itl_of, self._broken, self._clock = itl_of, broken, clock
        self.asked: list[Config] = []
        self.hangs = False

    def measure(self, config, *, rounds, fresh, **_):
        assert fresh
        self.asked.append(config)
        if self.hangs:
            self._clock.now_s += 1000.0
            raise WorkerError(TrialStatus.RUN_TIMEOUT, "no answer")
        if any(config.get(name) for name in self._broken):
            raise WorkerError(TrialStatus.CRASH, "SIGSEGV")
        made = tuple(
            RoundSamples("short", (100.0,), ((self._itl_of(config) * (1 + 0.002 * n),) * 19,))
            for n in range(rounds)
        )
        memory = {"peak_rss_mib": 300.0 if config.get("mmap") else 200.0}
        return Measurement(made, {}, {}, (), 80.0, 50.0, 1.0, 0.5, memory, Scope.PROCESS)


class Recorder:
    def __init__(self) -> None:
        self.ended: list[tuple[Config, TrialStatus]] = []

    def begin(self, config: Config) -> int:
        return len(self.ended)

    def finish(self, trial, config, status, reason, value, measured):
        self.ended.append((config, status))

    def more_rounds(self, config, rounds):
        raise AssertionError


class Try:
    """The stage on a winner that measured 10 ms a token."""

    def __init__(
        self,
        space: Space,
        itl_of: Speed = lambda _: 10.0,
        *,
        limits: tuple[Limit, ...] = (),
        fixed: frozenset[str] = frozenset(),
        problems: Mapping[str, str] | None = None,
        broken: frozenset[str] = frozenset(),
        budget_s: float = 300.0,
        hangs: bool = False,
    ) -> None:
        objective = objective_of(space.workload)
        self.events = []
        clock = FakeClock()
        self.runner, self.recorder = Runner(itl_of, broken, clock), Recorder()
        self.runner.hangs = hangs
        self.policies = Policies(
            space,
            objective,
            limits,
            runner=self.runner,
            recorder=self.recorder,
            ledger=Ledger(space, objective),
            summarise=lambda _, measured: measured.memory,
            problem_of=lambda config: next(
                (why for name, why in (problems or {}).items() if config.get(name)), None
            ),
            fixed=fixed,
            budget=Budget.begin(clock, budget_s),
            observer=self.events.append,
        )
        self.winner = Estimate(space.default("simulated"), 1.0, 1.0, 100.0, 10.0, 5)
        self.found = self.policies.around([self.winner], startup_s=0.5)

    @property
    def tried(self) -> list[dict[str, Setting]]:
        return [dict(tried.changes) for tried in self.policies.tried]


@pytest.fixture
def full(space: Space) -> Space:
    return with_dimensions(space, MMAP, MLOCK, HUGE)


def test_each_neighbour_is_tried_once_beside_the_winner(full: Space):
    stage = Try(full)
    assert stage.tried == [{"mmap": False}, {"mmap": False, "huge_pages": True}, {"mlock": True}]
    assert stage.runner.asked[0] == stage.winner.config
    assert len(stage.runner.asked) == 4
    assert [status for _, status in stage.recorder.ended] == [TrialStatus.COMPLETE] * 4


def test_what_makes_no_difference_is_left_and_its_price_told(full: Space):
    stage = Try(full)
    assert stage.found == [stage.winner]
    assert not any(tried.adopted for tried in stage.policies.tried)
    assert stage.policies.tried[0].to_json()["metrics"] == {"load_ms": 80.0, "peak_rss_mib": 200.0}
    said = [event.message for event in stage.events if event.kind == "note"]
    assert said[0] == (
        "mmap=false: load 80 ms (without: 80), memory 200 MiB (300), 1.00x the speed: left as it is"
    )


def test_what_is_faster_in_every_round_leads(full: Space):
    stage = Try(full, lambda config: 9.0 if config.get("huge_pages") else 10.0)
    leader = stage.found[0]
    assert (leader.config.get("mmap"), leader.config.get("huge_pages")) == (False, True)
    assert leader.itl_ms == pytest.approx(9.018)
    assert stage.found[1:] == [stage.winner]


def test_a_gain_within_the_noise_is_none(full: Space):
    # Every round of the two lies within the other's.
    stage = Try(full, lambda config: 9.98 if config.get("mlock") else 10.0)
    assert stage.found == [stage.winner]


def test_a_limit_that_the_winner_breaks_decides(full: Space):
    limit = Limit("peak_rss_mib", "<=", 250.0)
    stage = Try(full, limits=(limit,))
    assert stage.found[0].config.get("mmap") is False
    slow = Try(full, lambda config: 10.0 if config.get("mmap") else 11.0, limits=(limit,))
    assert slow.found == [slow.winner]


def test_a_lock_that_is_not_allowed_is_not_tried_and_told(full: Space):
    stage = Try(full, problems={"mlock": "mlock=true: limit 64 KiB < model 94 MiB"})
    assert not any(config.get("mlock") for config in stage.runner.asked)
    (refused,) = [tried for tried in stage.policies.tried if tried.reason]
    assert refused.reason == "mlock=true: limit 64 KiB < model 94 MiB"


def test_one_that_fails_costs_the_others_nothing(full: Space):
    stage = Try(full, broken=frozenset({"mlock"}))
    assert stage.policies.tried[-1].reason == "SIGSEGV"
    assert stage.found == [stage.winner]
    assert stage.recorder.ended[-1][1] is TrialStatus.CRASH


def test_a_winner_that_the_clock_ended_here_has_not_failed(full: Space):
    """A failed trial of it would keep it out of the study's next run."""
    stage = Try(full, hangs=True)
    assert stage.found == [stage.winner]
    assert stage.recorder.ended == [(stage.winner.config, TrialStatus.INTERRUPTED)]


def test_what_the_user_decided_or_searches_is_let_alone(space: Space, full: Space):
    assert Try(full, fixed=frozenset({"mmap"})).tried == [{"mlock": True}]
    varied = with_dimensions(space, replace(MMAP, values=(False, True)), MLOCK)
    assert list(neighbours(varied, varied.default("simulated"))) == [{"mlock": True}]
    assert list(neighbours(space, space.default("simulated"))) == []


def test_it_takes_a_tenth_of_the_budget_at_most(full: Space):
    # A process takes 1.4 s; the winner's and one more fit into a tenth of half a minute.
    assert Try(full, budget_s=30.0).tried == [{"mmap": False}]
    assert Try(full, budget_s=10.0).tried == []


def test_a_resumed_search_knows_its_neighbours_again(full: Space):
    default = full.default("simulated")
    assert not varies(full, default)
    assert varies(full, default.with_settings(mmap=False))
