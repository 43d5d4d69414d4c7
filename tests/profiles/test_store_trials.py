"""Trials and samples: one commit each, read back exactly, reused, invalidated."""

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_examples import DEFAULT, FAST, MEASUREMENT, ROUND, SPEC, die, in_child, renamed

from profiles.errors import NotFoundError, StoreError
from profiles.records import Measurement, StudyRecord
from profiles.store import Store, owner_token
from profiles.vocabulary import Config, RoundSamples, TrialStatus, Workload

numbers = st.floats(allow_nan=False, allow_infinity=False)
many = st.lists(numbers, max_size=5).map(tuple)
setting = st.booleans() | st.integers(-(2**40), 2**40) | numbers | st.text(max_size=5)


def finished(store: Store, study_id: str, value: float = 1.0, measurement: Measurement = MEASUREMENT) -> int:
    trial = store.start_trial(study_id, FAST, owner_token())
    store.finish_trial(
        trial.id, TrialStatus.COMPLETE, objective_value=value, measurement=measurement, rounds=[ROUND]
    )
    return trial.id


def test_a_trial_comes_back_as_it_ended(store: Store, study: StudyRecord) -> None:
    started = store.start_trial(study.id, FAST, owner_token(), stage="guided")
    assert (started.number, started.status, started.stage) == (0, TrialStatus.RUNNING, "guided")
    ended = store.finish_trial(
        started.id,
        TrialStatus.COMPLETE,
        reason="because",
        objective_value=812.5,
        effective={"n_threads": 2, "repack": True},
        metrics={"ttft_ms.p50": 61.25},
        measurement=MEASUREMENT,
        rounds=[ROUND],
        facts={"log": ["a", "b"]},
    )
    assert store.trial(started.id) == ended
    assert ended.config == FAST
    assert ended.objective_value == 812.5
    assert ended.effective == {"n_threads": 2, "repack": True}
    assert ended.metrics == {"ttft_ms.p50": 61.25}
    assert ended.measurement_key == MEASUREMENT.key
    assert ended.facts == {"log": ["a", "b"]}
    assert ended.reason == "because"
    assert ended.finished_at is not None
    assert ended.finished_at >= ended.started_at
    assert store.trial_rounds(started.id) == store.rounds(MEASUREMENT.key) == (ROUND,)
    assert store.study(study.id).updated_at > study.updated_at


@given(st.dictionaries(st.text(max_size=5), setting, max_size=5))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_configuration_comes_back_exactly(
    store: Store, study: StudyRecord, chosen: dict[str, bool | int | float | str]
) -> None:
    config = Config.of("simulated", "source", chosen)
    found = store.trial(store.start_trial(study.id, config, owner_token()).id).config
    assert found == config
    assert found.key == config.key


@given(
    st.builds(
        RoundSamples,
        st.sampled_from(["short", "full"]),
        many,
        st.lists(many, max_size=3).map(tuple),
        many,
        numbers,
        st.none() | st.text(max_size=9),
        st.dictionaries(st.text(max_size=5), numbers, max_size=3),
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_round_comes_back_exactly(store: Store, samples: RoundSamples) -> None:
    store.add_rounds(MEASUREMENT, [samples])
    assert store.rounds(MEASUREMENT.key)[-1] == samples


def test_samples_serve_every_study_of_the_same_measurement(store: Store, study: StudyRecord) -> None:
    other = store.open_study(renamed(SPEC, "other objective"), owner_token())
    finished(store, study.id)
    finished(store, other.id)
    store.add_rounds(MEASUREMENT, [replace(ROUND, kind="full", dropped="steal")])
    assert store.rounds(MEASUREMENT.key) == (ROUND, ROUND, replace(ROUND, kind="full", dropped="steal"))
    assert store.rounds("unknown") == ()


@pytest.mark.parametrize(
    "same",
    [
        {"config": replace(FAST, variant="another label")},
        {"workload": Workload("talk", 128, 128, objective="ttft_ms")},
    ],
)
def test_labels_and_objectives_do_not_make_another_measurement(same: dict[str, object]) -> None:
    assert replace(MEASUREMENT, **same).key == MEASUREMENT.key


@pytest.mark.parametrize(
    "other",
    [
        {"fingerprint": "x"},
        {"engine_build": "x"},
        {"variant_digest": "x"},
        {"config": FAST.with_settings(n_threads=3)},
        {"config": replace(FAST, engine="x")},
        {"workload": Workload("chat", 128, 128, streams=2)},
        {"conditions": "loaded"},
    ],
)
def test_what_decides_speed_makes_another_measurement(other: dict[str, object]) -> None:
    assert replace(MEASUREMENT, **other).key != MEASUREMENT.key


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_s07_a_value_that_is_no_number_is_invalid(store: Store, study: StudyRecord, value: float) -> None:
    trial = store.start_trial(study.id, FAST, owner_token())
    ended = store.finish_trial(
        trial.id,
        TrialStatus.COMPLETE,
        objective_value=value,
        metrics={"ttft_ms.p50": value, "itl_ms.p50": 6.0},
        facts={},
    )
    assert (ended.status, ended.objective_value) == (TrialStatus.INVALID, None)
    assert ended.reason == f"the objective came out as {value}"
    assert ended.metrics == {"itl_ms.p50": 6.0}


def test_s07_a_failure_keeps_its_own_status(store: Store, study: StudyRecord) -> None:
    trial = store.start_trial(study.id, FAST, owner_token())
    ended = store.finish_trial(trial.id, TrialStatus.CRASH, reason="SIGSEGV", objective_value=math.nan)
    assert (ended.status, ended.reason, ended.objective_value) == (TrialStatus.CRASH, "SIGSEGV", None)


def test_a_finished_trial_does_not_end_again(store: Store, study: StudyRecord) -> None:
    trial_id = finished(store, study.id)
    with pytest.raises(StoreError, match="has ended as complete; it can't end again as crash"):
        store.finish_trial(trial_id, TrialStatus.CRASH)


def test_a_trial_taken_for_interrupted_may_still_end(store: Store, study: StudyRecord) -> None:
    trial = store.start_trial(study.id, FAST, "gone:1:1")
    store.open_study(SPEC, owner_token())
    assert store.trial(trial.id).status is TrialStatus.INTERRUPTED
    ended = store.finish_trial(trial.id, TrialStatus.COMPLETE, objective_value=1.0)
    assert (ended.status, ended.reason) == (TrialStatus.COMPLETE, None)


def test_rounds_need_a_measurement(store: Store, study: StudyRecord) -> None:
    trial = store.start_trial(study.id, FAST, owner_token())
    with pytest.raises(StoreError, match="1 rounds without a measurement"):
        store.finish_trial(trial.id, TrialStatus.COMPLETE, rounds=[ROUND])
    assert store.trial(trial.id).status is TrialStatus.RUNNING


def test_a_round_that_json_has_no_word_for_stores_nothing(store: Store, study: StudyRecord) -> None:
    trial = store.start_trial(study.id, FAST, owner_token())
    with pytest.raises(StoreError, match="not JSON compliant"):
        store.finish_trial(
            trial.id,
            TrialStatus.COMPLETE,
            objective_value=1.0,
            measurement=MEASUREMENT,
            rounds=[ROUND, replace(ROUND, ttft_ms=(math.nan,))],
        )
    assert store.trial(trial.id).status is TrialStatus.RUNNING
    assert store.rounds(MEASUREMENT.key) == ()


@pytest.mark.parametrize("verb", ["trial", "finish", "invalidate", "start"])
def test_unknown_ids(store: Store, verb: str) -> None:
    with pytest.raises(NotFoundError, match=r"no (trial|study) '\w+' in the store"):
        {
            "trial": lambda: store.trial(99),
            "finish": lambda: store.finish_trial(99, TrialStatus.COMPLETE),
            "invalidate": lambda: store.invalidate_trial(99, "why"),
            "start": lambda: store.start_trial("nowhere", FAST, owner_token()),
        }[verb]()


def test_s11_an_invalidated_trial_leaves_the_samples(store: Store, study: StudyRecord) -> None:
    wrong, right = finished(store, study.id), finished(store, study.id)
    trial = store.invalidate_trial(wrong, "the cat slept on the fan")
    assert (trial.status, trial.reason) == (TrialStatus.INVALID, "the cat slept on the fan")
    assert trial.invalidated_at is not None
    assert len(store.rounds(MEASUREMENT.key)) == 1
    assert store.trial_rounds(wrong) == store.trial_rounds(right) == (ROUND,)
    assert store.trial_counts([study.id]) == {study.id: {TrialStatus.INVALID: 1, TrialStatus.COMPLETE: 1}}


def test_s11_a_running_trial_is_not_invalidated(store: Store, study: StudyRecord) -> None:
    trial = store.start_trial(study.id, FAST, owner_token())
    with pytest.raises(StoreError, match="still running"):
        store.invalidate_trial(trial.id, "why")


def test_trials_are_filtered_and_paged(store: Store, study: StudyRecord) -> None:
    for status in (TrialStatus.COMPLETE, TrialStatus.CRASH, TrialStatus.COMPLETE, TrialStatus.PRUNED):
        trial = store.start_trial(study.id, DEFAULT, owner_token())
        store.finish_trial(trial.id, status)
    assert [trial.number for trial in store.trials(study.id)] == [0, 1, 2, 3]
    assert [trial.number for trial in store.trials(study.id, limit=2, offset=1)] == [1, 2]
    complete = store.trials(study.id, statuses={TrialStatus.COMPLETE})
    assert [trial.number for trial in complete] == [0, 2]
    assert store.trials(study.id, statuses=()) == store.trials("unknown") == ()
    assert store.trial_counts([study.id, "unknown"])["unknown"] == {}


def test_a_page_counts_only_what_was_asked_for(store: Store, study: StudyRecord) -> None:
    for owner in (owner_token(), "gone:1:1", owner_token(), "gone:1:1"):
        store.start_trial(study.id, DEFAULT, owner)
    page = store.trials(study.id, statuses={TrialStatus.INTERRUPTED}, limit=1, offset=1)
    assert [trial.number for trial in page] == [3]
    living = store.trials(study.id, statuses={TrialStatus.RUNNING})
    assert [trial.number for trial in living] == [0, 2]


def test_a_killed_process_in_the_same_second_is_still_gone(store: Store, study: StudyRecord) -> None:
    def start() -> None:
        store.start_trial(study.id, FAST, owner_token())
        die()

    assert in_child(start) == -9
    assert [trial.status for trial in store.trials(study.id)] == [TrialStatus.INTERRUPTED]
