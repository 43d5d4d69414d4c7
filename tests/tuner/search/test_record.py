"""A search's trials are in the store as they end, and come back to the next search."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiles.records import Measurement as MeasurementKey
from profiles.records import StudyRecord, StudySpec
from profiles.store import Store, owner_token
from profiles.vocabulary import Objective, TrialStatus
from tests.support.surface import MODEL, FakeClock, SurfaceRunner
from tuner.measurement.measurement import Measurement
from tuner.search.record import StoreRecorder, facts_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "cputune.sqlite3") as store:
        yield store


@pytest.fixture
def study(store: Store, space: Any) -> StudyRecord:
    store.save_machine(space.machine, "here")
    store.save_model(MODEL, "tiny.gguf", "tiny")
    spec = StudySpec(
        fingerprint=space.machine.fingerprint, model_digest=MODEL.digest, workload=space.workload,
        engines=("simulated",), space_hash=space.digest, storage_name="tiny", name="tiny",
        objectives=(Objective("response_ms"),), quality_level="any", seed=1, sampler="tpe",
        engine_builds={"simulated": "1"},
    )  # fmt: skip
    return store.open_study(spec, owner_token())


@pytest.fixture
def recorder(store: Store, study: StudyRecord, space: Any) -> StoreRecorder:
    def identify(config: Any) -> MeasurementKey:
        return MeasurementKey(space.machine.fingerprint, "1", config.variant, config, space.workload)

    return StoreRecorder(store, study, identify=identify, summarise=lambda *_: {"ttft_ms.p50": 1.5})


@pytest.fixture
def measured(space: Any) -> Measurement:
    return SurfaceRunner(space, FakeClock()).measure(space.default("simulated"), rounds=2)


def test_a_finished_trial_comes_back_with_its_rounds(recorder, space, measured, store, study):
    config = space.default("simulated")
    number = recorder.begin(config)
    recorder.finish(number, config, TrialStatus.COMPLETE, None, 900.0, measured)
    recorder.more_rounds(config, measured.rounds[:1])
    ((trial, rounds),) = recorder.earlier()
    assert (trial.config, trial.status, trial.objective_value) == (config, TrialStatus.COMPLETE, 900.0)
    assert rounds == (*measured.rounds, measured.rounds[0])
    assert dict(trial.metrics) == {"ttft_ms.p50": 1.5}
    assert trial.facts["generation_seconds"] == measured.generation_seconds
    assert store.trial_counts([study.id])[study.id] == {TrialStatus.COMPLETE: 1}


def test_what_was_measured_under_load_is_measured_anew(recorder, space, measured, monkeypatch):
    """A later search begins quiet: it would rank these beside quiet samples."""
    config = space.default("simulated")
    quiet = recorder._identify
    monkeypatch.setattr(recorder, "_identify", lambda c: replace(quiet(c), conditions="loaded"))
    recorder.finish(recorder.begin(config), config, TrialStatus.COMPLETE, None, 900.0, measured)
    ((trial, rounds),) = recorder.earlier()
    assert (trial.status, rounds) == (TrialStatus.COMPLETE, ())


def test_a_failed_trial_comes_back_without_rounds(recorder, space):
    config = space.make("simulated", "q8_0", {})
    recorder.finish(recorder.begin(config), config, TrialStatus.CRASH, "SIGSEGV", None, None)
    ((trial, rounds),) = recorder.earlier()
    assert (trial.status, trial.reason, rounds) == (TrialStatus.CRASH, "SIGSEGV", ())


def test_s02_a_trial_that_did_not_end_may_be_tried_again(recorder, space):
    recorder.begin(space.default("simulated"))
    assert list(recorder.earlier()) == []


def test_a_trial_is_called_by_its_number_in_the_study(recorder, space, measured, store, study):
    """As `show --trials` lists it, whatever other studies the store holds."""
    other = store.open_study(study, owner_token(), fresh=True)
    for _ in range(3):
        store.start_trial(other.id, space.default("simulated"), owner_token())
    config = space.default("simulated")
    assert [recorder.begin(config), recorder.begin(config)] == [0, 1]
    recorder.finish(1, config, TrialStatus.COMPLETE, None, 900.0, measured)
    statuses = [trial.status for trial in store.trials(study.id)]
    assert statuses == [TrialStatus.RUNNING, TrialStatus.COMPLETE]


def test_s11_a_trial_that_was_declared_wrong_may_be_tried_again(recorder, space, measured, store, study):
    config = space.default("simulated")
    recorder.finish(recorder.begin(config), config, TrialStatus.COMPLETE, None, 900.0, measured)
    store.invalidate_trial(store.trials(study.id)[0].id, "the fan was off")
    assert list(recorder.earlier()) == []


def test_s07_an_objective_that_is_no_number_makes_the_trial_invalid(recorder, space, measured, store, study):
    config = space.default("simulated")
    recorder.finish(recorder.begin(config), config, TrialStatus.COMPLETE, None, float("nan"), measured)
    (trial,) = store.trials(study.id)
    assert trial.status is TrialStatus.INVALID
    assert "nan" in (trial.reason or "")


def test_what_the_engine_could_not_tell_is_kept(measured):
    assert facts_of(measured)["unknown"] == []
    assert set(facts_of(measured)) == {"seconds", "generation_seconds", "switched", "unknown"}
