"""A search over several engines: all are seen, the time goes where it can win, and the losers say why."""

import math
from dataclasses import replace

import pytest

from probes.machine import Machine
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, Config, ModelInfo, Quality, TrialStatus, Workload
from tests.support.lab import Lab
from tests.support.surface import MODEL, RUINED, SurfaceRunner
from tuner.engines.simulated.describe import Simulated
from tuner.errors import ModelFileError, WorkerError
from tuner.events import ignore
from tuner.measurement import placement
from tuner.search.firsts import first_looks
from tuner.search.judge import QualityJudge
from tuner.search.space import EngineSpace, Space


class Slower(Simulated):
    """Another engine of the same settings."""

    name = "slower"


class Broken(Simulated):
    """One whose processes die."""

    name = "broken"


@pytest.fixture
def engines(machine: Machine) -> Space:
    chat = WORKLOADS["chat"]

    def part(engine: Simulated, *variants: str) -> EngineSpace:
        dimensions = (*engine.dimensions(machine, MODEL, chat), *placement.dimensions(engine))
        return EngineSpace(engine, variants, dimensions)

    parts = (
        part(Simulated(), "source", "q8_0"),
        part(Slower(), "source", "q8_0", "q4_0"),
        part(Broken(), "source"),
    )
    return Space(machine, MODEL, chat, parts)


class Converting(Simulated):
    """One that takes the file only by a lossy conversion."""

    name = "converting"

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        return replace(super().default(machine, model, workload), engine=self.name, variant="q4_0")


class SeveralRunner(SurfaceRunner):
    """One engine takes `factor` as long as the formula says, another one dies."""

    factor = 1.3

    def true_ms(self, config: Config) -> tuple[float, float]:
        ttft_ms, itl_ms = super().true_ms(config)
        factor = self.factor if config.engine == "slower" else 1.0
        return factor * ttft_ms, factor * itl_ms


def lab_of(engines: Space, factor: float, budget_s: float = 300.0, **more) -> Lab:
    def fault(config: Config) -> None:
        if config.engine == "broken":
            raise WorkerError(TrialStatus.CRASH, "SIGILL")

    lab = Lab(engines, budget_s=budget_s, fault=fault, **more)
    runner = SeveralRunner(engines, lab.clock, noise=0.01, fault=fault)
    runner.factor = factor
    lab.runner = lab.search._trials._runner = runner
    return lab


def test_the_engine_of_such_files_is_seen_first_and_the_others_take_turns(engines: Space):
    looks = list(first_looks(engines, loaded=False))
    assert [(c.engine, c.variant) for c in looks[:2]] == [("simulated", "source"), ("simulated", "q8_0")]
    assert looks[2:4] == [engines.default("slower"), engines.default("broken")]
    assert [(c.engine, c.variant) for c in looks[4:]] == [
        ("slower", "source"), ("broken", "source"), ("slower", "q8_0"), ("slower", "q4_0"),
    ]  # fmt: skip


def test_on_a_loaded_machine_the_first_looks_leave_a_cpu_to_others(engines: Space):
    looks = [look for look in first_looks(engines, loaded=True) if look != engines.default(look.engine)]
    assert {look.get("n_threads") for look in looks} == {3}
    assert {look.get("n_threads_batch") for look in looks} == {3}


def test_the_losers_say_why(engines: Space):
    lab = lab_of(engines, 1.3)
    leaders = lab.search.run(engines.default("simulated"))
    assert leaders[0].config.engine == "simulated"
    won, slower, broken = lab.search.of_each_engine()
    assert (won.engine, won.lost, won.is_judged, won.over_best) == ("simulated", None, True, 1.0)
    assert slower.estimate.config.variant != "q4_0"
    assert slower.over_best == pytest.approx(1.3, abs=0.1)
    assert slower.lost == f"{slower.over_best:.2f}x as slow"
    assert (broken.estimate, broken.lost) == (None, "SIGILL")


def test_who_led_by_short_rounds_and_was_not_confirmed_says_so(engines: Space):
    """The answer's own engine has not lost, even where another one was ahead before the confirmation."""
    lab = lab_of(engines, 1.3)
    lab.search.run(engines.default("simulated"))
    led, behind, broken = lab.search.of_each_engine()
    assert [one.lost_to("simulated") for one in (led, behind, broken)] == [None, behind.lost, "SIGILL"]
    assert led.lost_to("slower") == "its lead was not confirmed"
    assert behind.lost_to("slower") is None


def test_an_engine_near_the_best_is_tuned_and_may_win(engines: Space):
    """By its first rule of thumb it is behind; with settings of its own it is ahead."""
    lab = lab_of(engines, 0.9)
    leaders = lab.search.run(engines.default("simulated"))
    assert leaders[0].config.engine == "slower"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("factor", "winner"), [(0.9, "slower"), (1.3, "simulated")])
def test_other_engines_beside_it_cost_the_best_engine_at_most_3_percent(
    engines: Space, factor: float, winner: str, seed: int
):
    """Within the same budget, whether or not it is the engine that comes first."""

    def found_ms(space: Space, first: str) -> float:
        lab = lab_of(space, factor, budget_s=60.0, seed=seed)
        leader = lab.search.run(space.default(first))[0].config
        assert leader.engine == winner
        ttft_ms, itl_ms = lab.runner.true_ms(leader)
        return ttft_ms + (WORKLOADS["chat"].output_tokens - 1) * itl_ms

    alone = replace(engines, engines=(engines.part(winner),))
    assert found_ms(engines, "simulated") <= 1.03 * found_ms(alone, winner)


def test_an_engine_far_behind_gets_no_more_than_first_looks(engines: Space):
    lab = lab_of(engines, 5.0, ruined={"q4_0"})
    lab.search.run(engines.default("simulated"))
    own = [config for config in lab.notes.begun if config.engine == "slower"]
    assert len(own) <= 6


def test_a_conversion_may_take_half_of_the_time_that_is_left(engines: Space):
    """Else one of them leaves no time to measure what it made, nor for any other engine."""
    allowed: list[tuple[float, float]] = []

    def digest_of(engine: str, label: str) -> str:
        allowed.append((lab.clock.now_s, lab.search.making_s))
        if engine == "slower":
            lab.clock.now_s += lab.search.making_s
            raise ModelFileError("not done")
        return f"{engine} {label}"

    lab = Lab(engines, budget_s=100.0, digest_of=digest_of)
    lab.search.run(engines.default("simulated"))
    (_, first), *others = allowed
    assert first == math.inf
    assert all(0 < seconds <= (100 - now_s) / 2 for now_s, seconds in others)
    assert lab.clock.now_s < 100
    assert lab.search.of_each_engine()[1].lost == "not done"


def test_an_engine_that_had_no_turn_says_so(engines: Space):
    lab = Lab(engines, trials=1)
    lab.search.run(engines.default("simulated"))
    assert [one.lost for one in lab.search.of_each_engine()][1:] == [
        "not tried: the time was needed elsewhere"
    ] * 2


def test_what_an_engine_makes_of_the_file_must_keep_the_level_too(engines: Space):
    """Only the file itself is feasible unmeasured, on whatever engine."""
    first = engines.engines[0]
    other = replace(first, engine=Converting())
    space = replace(engines, engines=(first, other, engines.part("slower")))
    asked: list[Config] = []

    def measure(key: Config) -> Quality:
        asked.append(key)
        return RUINED

    judge = QualityJudge(space, QUALITY_LEVELS["near-lossless"], measure, observer=ignore)
    assert judge.feasible(space.default("simulated"))
    assert judge.feasible(space.default("slower"))
    assert not judge.feasible(space.default("converting"))
    assert [key.engine for key in asked] == ["converting"]
