"""Studies: opened, resumed, started afresh, found; their orphans interrupted."""

import os
from dataclasses import replace

import pytest
from store_examples import DEFAULT, FAST, MODEL, SPEC, die, in_child, renamed, start_child, wait_for

from profiles.errors import NotFoundError
from profiles.records import StudyRecord, StudySpec, StudyStatus
from profiles.store import Store, is_alive, owner_token
from profiles.vocabulary import WORKLOADS, Limit, Objective, TrialStatus, Workload


def test_a_study_comes_back_as_it_was_opened(store: Store, study: StudyRecord) -> None:
    found = store.study(study.id)
    assert found == study
    for name in StudySpec.__dataclass_fields__:
        assert getattr(found, name) == getattr(SPEC, name), name
    assert (found.status, found.owner) == (StudyStatus.RUNNING, owner_token())


@pytest.mark.parametrize(
    "asked",
    [
        {"quality_level": "any"},
        {"limits": (Limit("ttft_ms", "<=", 100.0),)},
        {"objectives": (Objective("ttft_ms"),)},
        {"seed": 8, "request": {"budget_s": 5}},
        {"workload": replace(WORKLOADS["chat"], name="talk")},
    ],
)
def test_the_same_identity_is_resumed_with_what_is_asked_now(
    store: Store, study: StudyRecord, asked: dict[str, object]
) -> None:
    again = store.open_study(replace(SPEC, **asked), owner_token())
    assert again.id == study.id
    for name, value in asked.items():
        if name != "workload":
            assert getattr(again, name) == value


@pytest.mark.parametrize(
    "other",
    [
        {"engines": ("simulated", "llama_cpp")},
        {"space_hash": "x"},
        {"storage_name": "x"},
        {"workload": Workload("chat", 128, 127)},
    ],
)
def test_another_identity_is_another_study(
    store: Store, study: StudyRecord, other: dict[str, object]
) -> None:
    assert store.open_study(replace(SPEC, **other), owner_token()).id != study.id


def test_fresh_makes_a_new_study_that_is_resumed_from_then_on(store: Store, study: StudyRecord) -> None:
    fresh = store.open_study(SPEC, owner_token(), fresh=True)
    assert fresh.id != study.id
    assert fresh.storage_name == f"{study.storage_name}-{fresh.id}"
    assert fresh.key == study.key == SPEC.key
    assert store.open_study(SPEC, owner_token()) == replace(
        fresh, updated_at=store.study(fresh.id).updated_at
    )


@pytest.mark.parametrize(
    ("change", "what"), [({"fingerprint": "x"}, "machine"), ({"model_digest": "x"}, "model")]
)
def test_a_study_needs_its_machine_and_model(store: Store, change: dict[str, str], what: str) -> None:
    with pytest.raises(NotFoundError, match=f"no {what} 'x' in the store"):
        store.open_study(replace(SPEC, **change), owner_token())


def test_a_finished_study_keeps_status_and_result(store: Store, study: StudyRecord) -> None:
    store.finish_study(study.id, StudyStatus.CONFIRMED, {"status": "confirmed"})
    store.finish_study(study.id, StudyStatus.NO_GAIN)
    found = store.study(study.id)
    assert (found.status, found.result) == (StudyStatus.NO_GAIN, {"status": "confirmed"})


def test_s02_trials_of_a_killed_process_become_interrupted(store: Store) -> None:
    def search() -> None:
        study = store.open_study(SPEC, owner_token())
        done = store.start_trial(study.id, DEFAULT, owner_token())
        store.finish_trial(done.id, TrialStatus.COMPLETE, objective_value=1.0)
        store.start_trial(study.id, FAST, owner_token())
        die()

    assert in_child(search) == -9
    # Nothing is swept yet, and still nothing reads as running.
    (seen,) = store.studies()
    assert seen.status is StudyStatus.INTERRUPTED
    assert store.studies(status=StudyStatus.INTERRUPTED) == (seen,)
    assert store.studies(status=StudyStatus.RUNNING) == ()
    expected = {TrialStatus.COMPLETE: 1, TrialStatus.INTERRUPTED: 1}
    assert store.trial_counts([seen.id]) == {seen.id: expected}
    assert store.trials(seen.id, statuses={TrialStatus.RUNNING}) == ()
    (before,) = store.trials(seen.id, statuses={TrialStatus.INTERRUPTED})

    resumed = store.open_study(SPEC, owner_token())
    assert (resumed.id, resumed.status) == (seen.id, StudyStatus.RUNNING)
    assert store.studies(status=StudyStatus.RUNNING) == (resumed,)
    assert store.studies(status=StudyStatus.INTERRUPTED) == ()
    (orphan,) = store.trials(seen.id, statuses={TrialStatus.INTERRUPTED})
    assert orphan.id == before.id
    assert orphan.reason == "its search ended before it did"
    assert orphan.finished_at is not None
    assert store.trial_counts([seen.id]) == {seen.id: expected}


def test_s02_a_trial_of_a_living_process_goes_on(store: Store, study: StudyRecord) -> None:
    trial = store.start_trial(study.id, FAST, owner_token())
    store.open_study(SPEC, owner_token())
    assert store.trials(study.id, statuses={TrialStatus.RUNNING}) == (trial,)
    assert store.trial_counts([study.id]) == {study.id: {TrialStatus.RUNNING: 1}}


def test_owner_tokens_tell_the_living_from_the_gone() -> None:
    mine = owner_token()
    boot, pid, start = mine.split(":")
    assert int(pid) == os.getpid()
    assert is_alive(mine)
    assert not is_alive(f"{boot}:{pid}:{int(start) + 1}")
    assert not is_alive(f"another-boot:{pid}:{start}")
    for nonsense in ("", ":", "::", f"{boot}:x:1", f"{boot}:{pid}", f"{boot}:{pid}:"):
        assert not is_alive(nonsense)


def test_a_zombie_is_gone() -> None:
    reading, writing = os.pipe()

    def tell() -> None:
        os.write(writing, owner_token().encode())

    child = start_child(tell)
    token = os.read(reading, 200).decode()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not is_alive(token)
    assert wait_for(child) == 0
    os.close(reading)
    os.close(writing)


def test_studies_are_listed_newest_first_filtered_and_paged(store: Store) -> None:
    ids = [store.open_study(renamed(SPEC, f"study {n}"), owner_token()).id for n in range(4)]
    batch = store.open_study(replace(SPEC, workload=WORKLOADS["batch"]), owner_token()).id
    assert [study.id for study in store.studies()] == [batch, *reversed(ids)]
    assert [study.id for study in store.studies(limit=2, offset=1)] == [ids[3], ids[2]]
    assert [study.id for study in store.studies(workload=WORKLOADS["batch"])] == [batch]
    assert len(store.studies(fingerprint=SPEC.fingerprint, model_digest=MODEL.digest)) == 5
    assert store.studies(fingerprint="x") == store.studies(model_digest="x") == ()
    store.start_trial(ids[0], FAST, owner_token())
    store.finish_study(ids[0], StudyStatus.CONFIRMED)
    assert store.studies(limit=1)[0].id == ids[0]


def test_a_study_is_found_by_name_and_beginnings(store: Store, study: StudyRecord) -> None:
    other = store.open_study(renamed(SPEC, "rag-tiny"), owner_token())
    assert store.study("rag-tiny").id == other.id
    assert store.study("ch").id == study.id
    assert store.study(study.id[:7]).id == study.id
    fresh = store.open_study(SPEC, owner_token(), fresh=True)
    assert store.study("chat-tiny").id == fresh.id
    with pytest.raises(NotFoundError, match="'chat' is the beginning of 2 names"):
        store.study("chat")


@pytest.mark.parametrize("wanted", ["chat-tyni", "%", "_", ""])
def test_an_unknown_study_lists_names(store: Store, study: StudyRecord, wanted: str) -> None:
    with pytest.raises(NotFoundError, match=f"no study '{wanted}'; .*chat-tiny.*`cputune history`"):
        store.study(wanted)
    assert study.name == "chat-tiny"
