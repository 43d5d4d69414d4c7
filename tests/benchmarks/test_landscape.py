"""Recording, replaying and reporting on a tiny landscape."""

import json
from statistics import median

import pytest

from profiles.vocabulary import WORKLOADS, TrialStatus
from tests.benchmarks import report, synthetic
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.record import Recorder, continued, narrowed
from tests.benchmarks.replay import ReplayRunner, Truth, replay_judge
from tests.benchmarks.strategies import STRATEGIES, grid_cost_s
from tests.support.surface import LOSSLESS, RUINED, FakeClock, SurfaceRunner, space_of
from tuner.engines.base import Phase
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


def test_the_full_grid_finds_the_best_and_costs_what_is_counted(land):
    grid_s = grid_cost_s(land)
    clock_s = STRATEGIES["grid"](land, 10 * grid_s, 0).points[-1][0]
    assert clock_s < 1.5 * grid_s
    assert Truth(land).regret(STRATEGIES["grid"](land, 10 * grid_s, 0).at(10 * grid_s)) < 0.05


def test_a_report_is_printed_and_written(land, tmp_path, capsys):
    path, out = tmp_path / "tiny.json.gz", tmp_path / "report.json"
    land.save(path)
    report.main([str(path), "--seeds", "2", "--strategies", "cputune,random", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "| cputune |" in printed
    (found,) = json.loads(out.read_text())["found"]
    assert found["strategies"]["cputune"]["seeds"] == 2
    assert len(found["strategies"]["random"]["curve_median"]) == len(report.CURVE)
