"""Whatever a worker does is a row with its status, and the search ends normally."""

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from probes.machine import probe
from profiles.records import StudyStatus
from profiles.vocabulary import Config, TrialStatus
from tests.support.flow import Flow
from tuner import tune as flow_module
from tuner.engines.simulated import faults
from tuner.engines.simulated.describe import Simulated
from tuner.errors import EngineUnavailableError, NothingFeasibleError, WorkerError
from tuner.events import Event
from tuner.measurement import bench
from tuner.measurement.isolation import Deadlines
from tuner.measurement.measurement import Measurement

HASTY = Deadlines(start_s=30.0, load_s=0.6, progress_s=0.3, run_s=0.8, least_run_s=0.8)
KINDS = {
    "segv_on_load": "crash",
    "abort_on_decode": "crash",
    "hang_on_load": "load_timeout",
    "hang_on_decode": "run_timeout",
    "memory_on_load": "out_of_memory",
    "garbage_protocol_on_decode": "protocol",
    "short_output": "invalid",
    "effective_mismatch": "invalid",
}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines for workers that answer at once or never."""
    monkeypatch.setattr(bench, "Deadlines", lambda: HASTY)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 1 GiB left."""
    machine = probe()
    small = replace(machine, effective=replace(machine.effective, memory_bytes=1 << 30))
    monkeypatch.setattr(flow_module, "probe", lambda: small)


def test_s03_s04_e11_e12_every_fault_is_a_row_and_the_search_ends(
    flow: Flow, quick_quality, hasty, little_memory, workers: list[int], monkeypatch: pytest.MonkeyPatch
):
    """After the default each failed trial is followed by another fault; garbage on stdout is none."""
    left = [*KINDS, "garbage_stdout_on_load"]
    struck = len(left)

    def next_fault(event: Event) -> None:
        # A fault strikes where a worker starts: a trial in a worker that lives on does not meet it.
        if event.kind == "trial" and (TrialStatus(str(event.detail["status"])).failed or len(left) == struck):
            monkeypatch.setenv(faults.VARIABLE, json.dumps({"*": left.pop(0)} if left else {}))
        elif event.kind == "stage" and event.message == "confirmation":
            monkeypatch.delenv(faults.VARIABLE, raising=False)

    document = flow.search(trials=14, observer=next_fault)
    assert left == []
    trials = flow.trials()
    failed = {trial.status: trial.reason for trial in trials if trial.status.failed}
    assert set(map(str, failed)) == set(KINDS.values())
    assert all(failed.values())
    assert {t.status for t in trials if not t.status.failed} <= {"complete", "pruned", "infeasible"}
    assert document["status"] in {"provisional", "no_gain"}
    counts = flow.statuses()
    assert counts["invalid"] == 2
    assert counts["crash"] == 2
    assert document["trials"]["failed"] == len(KINDS)
    assert len({trial.config.key for trial in trials}) == len(trials)


def test_a_setting_that_always_crashes_costs_at_most_three_trials(
    flow: Flow, quick_quality, set_faults: Callable[..., None]
):
    set_faults({"bf16": "abort_on_decode"})
    document = flow.search(trials=14, variants=("source", "bf16"))
    crashed = Counter(trial.config.variant for trial in flow.trials() if trial.status.failed)
    assert set(crashed) == {"bf16"}
    assert crashed["bf16"] <= 3
    assert document["best"]["variant"] == "source"


def test_a_default_that_crashes_gives_way_to_the_nearest_that_runs(
    flow: Flow, quick_quality, monkeypatch: pytest.MonkeyPatch
):
    measure = bench.Bench.measure

    def fail_without_flash(self: bench.Bench, config: Config, **options: Any) -> Measurement:
        if config.get("flash_attn") == "off":
            raise WorkerError(TrialStatus.CRASH, "SIGSEGV")
        return measure(self, config, **options)

    monkeypatch.setattr(bench.Bench, "measure", fail_without_flash)
    document = flow.search(trials=4, variants=("source", "bf16"))
    assert "SIGSEGV" in document["default_failure"]
    assert "the default itself does not run" in flow.notes
    default, baseline = flow.trials()[0].config, document["baseline"]
    assert {k for k, v in default.settings if baseline["config"][k] != v} == {"flash_attn"}
    assert baseline["variant"] == default.variant
    assert document["best"]["profile_id"]


def test_s07_where_everything_fails_nothing_is_published(
    flow: Flow, quick_quality, set_faults: Callable[..., None], workers: list[int]
):
    set_faults({"*": "abort_on_load"})
    with pytest.raises(NothingFeasibleError, match="SIGABRT"):
        flow.search(trials=4)
    assert flow.study().status is StudyStatus.INFEASIBLE
    assert set(flow.statuses()) == {"crash"}
    with flow.store() as store:
        assert store.profiles() == ()


def test_an_engine_that_cannot_be_imported_is_said_before_anything_is_measured(
    flow: Flow, set_faults: Callable[..., None]
):
    set_faults({"*": "sigill_on_import"})
    with pytest.raises(EngineUnavailableError, match="simulated: this build needs instructions"):
        flow.search()
    with flow.store() as store:
        assert store.studies() == ()


def test_s11_a_round_that_is_ten_times_too_fast_wins_nothing(
    flow: Flow, quick_quality, set_faults: Callable[..., None], set_world: Callable[..., None]
):
    """Every fifth request of a worker takes a tenth of its time, on a machine with 5 % noise."""
    set_faults({"q8_0": "outlier"})
    set_world(noise=0.05, seed=3)
    document = flow.search(trials=8, variants=("source", "q8_0"))
    assert document["speedup"]["ratio"] < 1.6
    with flow.store() as store:
        for comparison in store.comparisons(flow.study().id):
            ratios = [pair.a_values[0] / pair.b_values[0] for pair in store.pairs(comparison.id)]
            assert max(ratios) < 3.0


def test_s15_memory_of_the_parent_stays_flat(flow: Flow, quick_quality, monkeypatch: pytest.MonkeyPatch):
    resident: list[int] = []

    def weigh(event: Event) -> None:
        if event.kind == "trial":
            with open("/proc/self/statm") as file:
                resident.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

    flow.search(trials=10, observer=weigh, variants=("source", "bf16"))
    assert len(resident) >= 8
    assert resident[-1] - resident[3] < 16 << 20


def test_a_broken_maker_leaves_its_variant_out(flow: Flow, quick_quality, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Simulated, "maker", lambda _: "tuner.engines.simulated.no_such_module")
    document = flow.search(trials=4)
    assert document["best"]["variant"] == "source"
    assert "bf16 is left out" in flow.notes
    assert "no_such_module" in flow.notes


def test_the_log_of_a_worker_that_crashed_is_kept_and_those_of_others_are_not(
    flow: Flow, quick_quality, set_faults: Callable[..., None]
) -> None:
    set_faults({"bf16": "segv_on_decode"})
    flow.search(trials=4, variants=("source", "bf16"))
    logs: list[Any] = list(flow.home.logs.iterdir())
    assert len(logs) <= flow.statuses()["crash"] + 1
