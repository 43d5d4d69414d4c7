"""Recording, replaying and reporting on a tiny landscape."""

import json
import random
from statistics import median

import pytest

from profiles.vocabulary import WORKLOADS, Config, TrialStatus
from tests.benchmarks import report, strategies, synthetic
from tests.benchmarks.grid_cost import grid_cost_s
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.record import Recorder, continued, narrowed
from tests.benchmarks.remembered import RememberedSpace
from tests.benchmarks.replay import ReplayRunner, Truth, replay_judge
from tests.benchmarks.strategies import STRATEGIES
from tests.support.surface import LOSSLESS, RUINED, FakeClock, SurfaceRunner, space_of
from tuner.engines.base import Phase, Scope
from tuner.errors import WorkerError


@pytest.fixture(scope="module")
def space():
    tiny = space_of(synthetic.machine_of(2), WORKLOADS["chat"], ("source", "q8_0", "q4_0"))
    return narrowed(tiny, {"type_k": ["f16"], "type_v": ["f16"], "n_ubatch": ["32", "128"]})


def test_a_grid_without_the_default_is_refused():
    """512 is measured as 128 where the prompt has no more tokens."""
    tiny = space_of(synthetic.machine_of(2), WORKLOADS["chat"], ("source",))
    with pytest.raises(SystemExit, match="--values n_ubatch: must hold 128"):
        narrowed(tiny, {"n_ubatch": ["64", "512"]})


def test_an_unknown_setting_of_a_grid_is_refused(space):
    with pytest.raises(SystemExit, match="--values n_ubatsch: allowed are "):
        narrowed(space, {"n_ubatsch": ["64"]})


def recorder(land, left_s=lambda: 1e9, fault=lambda _: None, rounds=4):
    runner = SurfaceRunner(land.space, FakeClock(), noise=0.01, fault=fault)
    return Recorder(land, runner, rounds, left_s, save=lambda: None, tell=lambda _: None)


@pytest.fixture
def land(space):
    made = Landscape(space)
    record = recorder(made)
    assert record.passes(kept_s=0)
    record.qualities(lambda key: RUINED if key.variant == "q4_0" else LOSSLESS)
    return made


def test_every_part_of_both_phases_is_recorded(land):
    for phase, wanted in land.wanted().items():
        assert {land.space.phase_part(config, phase) for config in wanted} == set(land.samples_ms[phase])
        assert all(len(rounds) == 4 for rounds in land.samples_ms[phase].values())


def test_the_parts_predict_whole_configurations(land):
    record = recorder(land)
    record.checks(10, seed=0)
    assert len(land.checks) >= 5
    errors = [abs(check["predicted_ms"] / check["measured_ms"] - 1) for check in land.checks]
    assert median(errors) < 0.02


def test_an_interrupted_recording_goes_on(space):
    land = Landscape(space)
    left = iter(range(30, -1000, -1))
    assert not recorder(land, left_s=lambda: next(left)).passes(kept_s=0)
    before = sum(len(rounds) for table in land.samples_ms.values() for rounds in table.values())
    assert before == 30
    assert recorder(land, rounds=1).passes(kept_s=0)
    assert all(len(rounds) == 1 for table in land.samples_ms.values() for rounds in table.values())


def test_a_part_that_fails_is_left_out(space):
    def fault(config):
        if config.get("flash_attn") == "on":
            raise WorkerError(TrialStatus.CRASH, "SIGSEGV")

    land = Landscape(space)
    recorder(land, fault=fault).passes(kept_s=0)
    assert all(part.get("flash_attn") == "off" for part in land.samples_ms[Phase.DECODE])
    assert Truth(land).best.get("flash_attn") == "off"


def test_a_file_is_read_back(land, tmp_path):
    path = tmp_path / "tiny.json.gz"
    land.save(path)
    read = Landscape.load(path)
    assert read.space.digest == land.space.digest
    assert read.quality == land.quality
    part, rounds = next(iter(land.samples_ms[Phase.DECODE].items()))
    assert read.samples_ms[Phase.DECODE][part] == pytest.approx(rounds, rel=1e-4)
    assert Truth(read).best == Truth(land).best
    assert continued(path, land.space, {}).space.digest == land.space.digest
    with pytest.raises(SystemExit, match="another space or build"):
        continued(path, land.space, {"simulated": "2"})


def test_replay_gives_odd_rounds_and_truth_is_even(land):
    config = land.space.default("simulated")
    part = land.space.phase_part(config, Phase.PREFILL)
    land.samples_ms[Phase.PREFILL][part] = [10.0, 99.0, 12.0, 101.0]
    clock = FakeClock()
    measured = ReplayRunner(land, clock, seed=0).measure(config, rounds=20)
    assert {samples.ttft_ms[0] for samples in measured.rounds} == {99.0, 101.0}
    assert Truth(land).phase_ms(config, Phase.PREFILL) == 11.0
    assert clock.now_s > sum(samples.wall_ms for samples in measured.rounds) / 1000


def test_a_part_with_one_round_is_not_recorded(land):
    """Both halves would be the same round."""
    config = land.space.default("simulated")
    land.samples_ms[Phase.DECODE][land.space.phase_part(config, Phase.DECODE)] = [1.0]
    assert not Truth(land).knows(config, Phase.DECODE)
    with pytest.raises(WorkerError, match="decode of this configuration was not recorded"):
        ReplayRunner(land, FakeClock(), seed=0).measure(config, rounds=1)


def test_a_failure_costs_its_start_and_the_process(land):
    space = land.space
    land.overhead_s = {"simulated/source": {"process": [5.0], "none": [0.25]}}
    default, lost = space.default("simulated"), space.make("simulated", "source", {"flash_attn": "on"})
    del land.samples_ms[Phase.DECODE][space.phase_part(lost, Phase.DECODE)]
    clock = FakeClock()
    runner = ReplayRunner(land, clock, seed=0)
    with pytest.raises(WorkerError):
        runner.measure(lost, rounds=1)
    assert clock.now_s == 5.0
    again = [runner.measure(default, rounds=1) for _ in range(2)]
    assert [round(made.seconds - made.generation_seconds, 6) for made in again] == [5.0, 0.25]


def test_overheads_that_were_not_seen_are_those_of_the_nearest(space):
    """A slow engine's start must not count as another engine's."""
    land = Landscape(space)
    land.overhead_s = {
        "slow/int8": {"load": [8.0, 9.0, 9.5]},
        "slow/int8_mixed": {"process": [7.0]},
        "simulated/source": {"process": [0.5], "context": [0.1]},
    }
    known = [
        (("slow", "int8"), Scope.PROCESS, 9.0),
        (("slow", "int8_mixed"), Scope.LOAD, 7.0),
        (("slow", "int4"), Scope.PROCESS, 7.0),
        (("slow", "int8"), Scope.CONTEXT, 0.1),
        (("other", "source"), Scope.RUN, 0.01),
    ]
    assert [land.overhead(Config(*kind), scope) for kind, scope, _ in known] == [s for _, _, s in known]


def test_rounds_cost_what_they_compute(land):
    """A short round of chat decodes 54 tokens behind the prompt, and computes what its cache lacks."""
    config = land.space.default("simulated")
    for phase, ms in ((Phase.PREFILL, 128.0), (Phase.DECODE, 1.0)):
        land.samples_ms[phase][land.space.phase_part(config, phase)] = [ms] * 4
    runner = ReplayRunner(land, FakeClock(), seed=0)

    def wall_ms(**asked):
        return runner.measure(config, rounds=1, **asked).rounds[0].wall_ms

    assert wall_ms() == 128 + 54 + 19
    assert wall_ms(phases=frozenset({Phase.PREFILL})) == 128
    assert wall_ms(phases=frozenset({Phase.DECODE})) == 54 + 19
    assert wall_ms(phases=frozenset({Phase.DECODE})) == 1 + 19
    assert wall_ms(phases=frozenset({Phase.DECODE}), fresh=True) == 128 + 54 + 19
    assert wall_ms(kind="full") == 128 + 127


def test_judging_costs_time_once(land):
    clock = FakeClock()

    def spend(seconds):
        clock.now_s += seconds

    judge = replay_judge(land, spend)
    ruined = land.space.make("simulated", "q4_0", {})
    assert not judge.feasible(ruined)
    spent_s = clock.now_s
    assert spent_s == pytest.approx(land.quality_s + land.reference_s)
    assert judge.known_bad(ruined)
    assert clock.now_s == spent_s


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_strategies_advise_something_feasible_within_their_time(land, name):
    trace = STRATEGIES[name](land, 20.0, 0)
    assert trace.at(0.0) == land.space.default("simulated")
    assert trace.at(20.0).variant != "q4_0"
    assert Truth(land).regret(trace.at(20.0)) <= Truth(land).regret(trace.at(0.0))


@pytest.mark.parametrize("name", [name for name in sorted(STRATEGIES) if name != "cputune"])
def test_no_strategy_advises_what_is_slower_than_the_default(land, name):
    """Whatever it measures next, the default was measured first."""
    default = land.space.default("simulated")
    for phase in Phase:
        part = land.space.phase_part(default, phase)
        land.samples_ms[phase][part] = [value / 10 for value in land.samples_ms[phase][part]]
    trace = STRATEGIES[name](land, 20.0, 0)
    assert Truth(land).best == default
    assert [config for _, config in trace.points] == [default]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_strategies_go_on_after_failures(land, name):
    lost = [part for part in land.samples_ms[Phase.DECODE] if part.get("flash_attn") == "on"]
    for part in lost:
        del land.samples_ms[Phase.DECODE][part]
    advice = STRATEGIES[name](land, 30.0, 0).at(30.0)
    assert advice.get("flash_attn") == "off"
    assert Truth(land).regret(advice) < Truth(land).regret(land.space.default("simulated"))


def test_random_ends_where_everything_was_measured(land):
    trace = STRATEGIES["random"](land, 1e9, 0)
    assert Truth(land).regret(trace.at(1e9)) < 0.05


def test_the_full_grid_finds_the_best_and_costs_what_is_counted(land, monkeypatch):
    truth = Truth(land)
    land.overhead_s = {
        "simulated/source": {"process": [1.0], "load": [1.0], "context": [0.3], "run": [0.05]},
    }
    grid_s = grid_cost_s(land, truth)
    trace = STRATEGIES["grid"](land, 10 * grid_s, 0)
    assert truth.regret(trace.at(10 * grid_s)) < 0.05
    clock = FakeClock()
    monkeypatch.setattr(strategies, "FakeClock", lambda: clock)
    land.quality = {}
    STRATEGIES["grid"](land, 10 * grid_s, 0)
    assert clock.now_s == pytest.approx(grid_s, rel=0.03)


def test_a_remembered_space_answers_as_its_original(land):
    space, remembered = land.space, RememberedSpace.of(land.space)
    rng = random.Random(0)
    for _ in range(2):
        assert remembered.default("simulated") == space.default("simulated")
        for phase in Phase:
            listed = space.listed(phase, rng)
            assert remembered.listed(phase, rng) == listed
            for config in listed:
                settings = config.as_dict()
                assert remembered.make(config.engine, config.variant, settings) == config
                assert remembered.phase_part(config, phase) == space.phase_part(config, phase)
                assert remembered.shared_part(config) == space.shared_part(config)
    assert remembered.digest == space.digest


def test_a_report_is_printed_and_written(land, tmp_path, capsys):
    path, out = tmp_path / "tiny.json.gz", tmp_path / "report.json"
    land.checks = [
        {"predicted_ms": 98.0, "measured_ms": 100.0},
        {"predicted_ms": 104.0, "measured_ms": 100.0},
    ]
    land.save(path)
    report.main([str(path), "--seeds", "2", "--strategies", "cputune,random", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "| cputune |" in printed
    assert "parts of 4 rounds or more, grid " in printed
    assert "parts predict 2 whole configurations within 3.0 % (median), 4.0 % (worst)" in printed
    (found,) = json.loads(out.read_text())["found"]
    assert found["strategies"]["cputune"]["seeds"] == 2
    assert len(found["strategies"]["random"]["curve_median"]) == len(report.CURVE)


@pytest.mark.parametrize(
    ("p95", "area", "said"),
    [
        (0.03, 9.0, "against tpe median no larger, p95 LARGER there, area NOT smaller (95 %)"),
        (0.01, 7.0, "against tpe median no larger, p95 no larger there, area smaller (95 %)"),
    ],
)
def test_the_verdict_says_where_it_is_not_ahead(p95, area, said):
    def result(regret, around):
        return {"regret": {"1.0": regret}, "area_95": [around - 1, around + 1]}

    ours, other = result({"median": 0.01, "p95": p95}, area), result({"median": 0.01, "p95": 0.02}, 10.0)
    found = {"horizon": 0.1, "strategies": {"cputune": ours, "tpe": other}}
    assert report.verdict(found) == f"regret kept at 10.0% of the grid's cost; {said}\n"
