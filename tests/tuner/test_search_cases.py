"""Known trouble of searches as whole flows: resuming, hanging, nothing valid, heat, ties, memory."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NoReturn

import pytest

from probes.effective import Effective
from probes.machine import Machine, probe
from probes.sysfs import Sysfs
from profiles.records import StudyStatus
from profiles.vocabulary import WORKLOADS, Config, Objective, Workload
from tests.probes.trees import CPU, Tree
from tests.support.flow import Flow
from tests.support.surface import FakeClock, SurfaceRunner, space_of
from tuner import environment
from tuner import tune as flow_module
from tuner.cli.main import run
from tuner.engines.simulated import surface
from tuner.engines.simulated.describe import Simulated
from tuner.errors import NothingFeasibleError
from tuner.events import Event, ignore
from tuner.measurement.measurement import Measurement
from tuner.search.budget import Budget
from tuner.search.confirm import Plan, confirm
from tuner.search.ledger import Estimate
from tuner.search.proposer import SAMPLER_NAME
from tuner.search.tie import TIE_PAIRS, cheaper_rival, decide_tie, is_cheaper
from tuner.workshop import Workshop

FOUR = replace(Machine(), effective=Effective(cpus=(0, 1, 2, 3), cpu_count=4))
RESPONSE = Objective("response_ms")


# --- S03, S05, S07: searches that hang, go on, or find nothing -------------------------------------


def test_s03_no_wait_of_a_search_outlasts_its_time(flow: Flow, monkeypatch):
    """What a worker is given at most is what is left of the budget; that it is killed then is the bench's."""
    seen: list[float] = []
    now_s = 0.0

    def bench(shop: Workshop, *, seed: int) -> NoReturn:
        nonlocal now_s
        for moment_s in (0.0, 40.0, 100.0):
            now_s = moment_s
            seen.append(shop.remaining_s())
        raise KeyboardInterrupt

    monkeypatch.setattr(Workshop, "bench", bench)
    with pytest.raises(KeyboardInterrupt):
        flow_module.tune(flow.request(budget_s=60.0), home=flow.home, observer=ignore, clock=lambda: now_s)
    assert seen == [60.0 + flow_module.GRACE_S, 20.0 + flow_module.GRACE_S, flow_module.GRACE_S]
    assert flow.study().status is StudyStatus.INTERRUPTED


def test_s05_a_resumed_study_goes_on_with_other_configurations(flow: Flow, quick_quality):
    for _ in range(2):
        flow.search(trials=5, seed=1)
    trials = flow.trials()
    assert len({trial.config for trial in trials}) == len(trials) >= 9
    study = flow.study()
    assert (study.seed, study.sampler) == (1, SAMPLER_NAME)
    with flow.store() as store:
        assert len(store.studies()) == 1


def test_s07_where_every_answer_is_too_short_nothing_wins(
    flow: Flow, set_faults: Callable[..., None], quick_quality
):
    set_faults({"*": "short_output"})
    ended: list[Event] = []

    def tried(event: Event) -> None:
        ended.extend([event] if event.kind == "trial" else [])

    def clock() -> float:
        return time.monotonic() + (1e6 if len(ended) >= 3 else 0.0)

    with pytest.raises(NothingFeasibleError):
        flow_module.tune(flow.request(), home=flow.home, observer=tried, clock=clock)
    assert set(flow.statuses()) == {"invalid"}
    assert "tokens" in (flow.trials()[0].reason or "")
    assert flow.study().status is StudyStatus.INFEASIBLE
    with flow.store() as store:
        assert store.profiles() == ()


# --- S08: one at a time -----------------------------------------------------------------------------


def test_s08_a_search_that_measures_keeps_others_from_measuring(flow: Flow, quick_quality, capsys):
    answers = []

    def ask_meanwhile(event: Event) -> None:
        if event.kind == "trial" and not answers:
            answers.append(run(["search", "--engines", "simulated", "--model", str(flow.model), "--fresh"]))

    flow.search(trials=1, observer=ask_meanwhile)
    assert answers == [75]
    assert "another process measures" in capsys.readouterr().err


# --- S10: heat, order, governor ---------------------------------------------------------------------


class Heating(SurfaceRunner):
    """Every measurement is 5 % slower than the one before it."""

    def measure(self, config: Config, **options) -> Measurement:
        slower = 1.05 ** len(self.measured)
        made = super().measure(config, **options)
        rounds = tuple(
            replace(r, response_ms=tuple(value * slower for value in r.response_ms)) for r in made.rounds
        )
        return replace(made, rounds=rounds)


def confirmed_under_heat(best: dict[str, int]):
    space = space_of(FOUR, WORKLOADS["chat"])
    clock = FakeClock()
    runner = Heating(space, clock)
    default = space.make("simulated", "source", {"n_threads": 4, "n_threads_batch": 4})
    return confirm(
        runner,
        {"default": default, "best": default.with_settings(**best)},
        RESPONSE,
        lambda rounds: median(r.response_ms[0] for r in rounds),
        plan=Plan(rounds=1, pair_s=5.0),
        budget=Budget.begin(clock, 1000.0),
        earlier=[],
        keep=lambda *_: None,
        observer=ignore,
    )


def test_s10_what_runs_later_on_a_machine_that_heats_up_loses_nothing():
    """Against a copy of itself: the two change places from pair to pair."""
    found = confirmed_under_heat({"wait_policy": "default"})
    assert found.status == "no_gain"
    assert found.speedup.low < 1.0 < found.speedup.high
    assert found.speedup.estimate == pytest.approx(1.0, abs=0.051)
    slower = confirmed_under_heat({"n_threads": 2})
    assert slower.speedup.high < 1.0


def test_s10_a_study_keeps_governor_and_clock(tmp_path: Path, flow: Flow, quick_quality):
    tree = Tree(tmp_path / "tree").plain(2)
    base = f"{CPU}/cpu0/cpufreq"
    tree.write(f"{base}/scaling_governor", "powersave\n").write(f"{base}/scaling_max_freq", "2400000\n")
    tree.write(f"{base}/cpuinfo_max_freq", "3600000\n")
    machine = tree.probe()
    kept = environment.around(machine, environment.now(machine, Sysfs(tree.root)))
    assert kept["governors"] == "powersave"
    assert (kept["frequency_limit_mhz"], kept["frequency_max_mhz"]) == (2400.0, 3600.0)
    # And that it is these that a search stores.
    document = flow.search(trials=1)
    here = probe()
    assert flow.study().environment == environment.around(here, environment.now(here))
    assert set(document["throttling"]) <= {"thermal_events", "quota_periods", "quota_s"}


def test_s10_throttling_is_counted_over_the_search(tmp_path: Path):
    tree = Tree(tmp_path / "tree").plain(2)
    count = f"{CPU}/cpu0/thermal_throttle/core_throttle_count"
    machine = tree.write(count, "7\n").probe()
    before = environment.now(machine, Sysfs(tree.root))
    tree.write(count, "12\n")
    found = environment.throttling(before, environment.now(machine, Sysfs(tree.root)))
    assert found["thermal_events"] == 5


# --- S12: first tokens -------------------------------------------------------------------------------


def test_s12_loading_and_first_use_are_no_part_of_the_first_token(flow: Flow, quick_quality):
    """On the simulated clock loading takes 80 ms, which a TTFT that began with it would have."""
    baseline = flow.search(trials=1, variants=("source",))["baseline"]
    metrics, settings = baseline["metrics"], baseline["config"]
    world = surface.World(cpus=len(os.sched_getaffinity(0)))
    computed_ms = surface.prefill_ms(world, "source", settings, WORKLOADS["chat"].prompt_tokens)
    assert metrics["ttft_ms.p50"] == pytest.approx(computed_ms, rel=0.01)
    assert metrics["load_ms"] > 0.05 * computed_ms
    assert metrics["first_request_ms"] != metrics["ttft_ms.p50"]


# --- S14: memory -------------------------------------------------------------------------------------


def test_s14_what_does_not_fit_into_memory_is_not_paged_from_disk_but_refused(flow: Flow, monkeypatch):
    machine = probe()
    room = flow.model.stat().st_size
    small = replace(machine, effective=replace(machine.effective, memory_bytes=room))
    monkeypatch.setattr(flow_module, "probe", lambda: small)
    with pytest.raises(NothingFeasibleError, match=r"source needs .* GiB of memory are free"):
        flow.search(trials=1)
    with flow.store() as store:
        assert store.studies() == ()


def test_s14_both_parts_of_the_peak_are_told(flow: Flow, quick_quality):
    metrics = flow.search(trials=1, variants=("source",))["baseline"]["metrics"]
    parts = metrics["peak_anon_mib"] + metrics["peak_file_mib"]
    assert metrics["peak_anon_mib"] > 1
    assert metrics["peak_file_mib"] > 1
    assert metrics["peak_rss_mib"] <= parts * 1.05


# --- S09, S16: equals --------------------------------------------------------------------------------


@pytest.mark.parametrize("difference", [0.98, 1.0, 1.02])
def test_s09_s16_of_two_equal_ones_the_one_with_fewer_threads_wins_where_it_is_shown(difference: float):
    space = space_of(FOUR, WORKLOADS["chat"])
    two = space.make("simulated", "source", {"n_threads": 2, "n_threads_batch": 2})
    one = two.with_settings(n_threads=1)
    estimates = [
        Estimate(two, 100.0, 100.0, 10.0, 1.0, 5),
        Estimate(one, *[100.0 * difference] * 2, 10, 1, 5),
    ]

    def cheaper(config: Config, than: Config) -> bool:
        return is_cheaper(space, lambda _: {}, config, than)

    rival = cheaper_rival(estimates, cheaper)
    assert rival is not None
    assert rival.config == one
    noise = [0.003 * (-1) ** number for number in range(TIE_PAIRS)]
    assert decide_tie([math.log(difference) + n for n in noise], False) is (difference <= 1.0)
    assert not cheaper(two, one)


def test_s16_prompt_and_generation_have_counts_of_their_own_from_one_on():
    dimensions = {d.name: d.values for d in space_of(FOUR, WORKLOADS["chat"]).engines[0].dimensions}
    assert {1, 2} <= set(dimensions["n_threads"])
    assert {1, 2} <= set(dimensions["n_threads_batch"])
    default = Simulated().default(FOUR, space_of(FOUR, WORKLOADS["chat"]).model, Workload("w", 8, 8))
    assert default.get("n_threads") != default.get("n_threads_batch")
