"""What one store tells another: all of it, once, and nothing where the text is damaged."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_examples import DEFAULT, FAST, MACHINE, MEASUREMENT, MODEL, PROFILE, ROUND, SPEC, renamed

from profiles.bundle import read_lines
from profiles.documents import machine_document, profile_document
from profiles.errors import DocumentError, NotFoundError
from profiles.records import QualityKey, StudyRecord, StudyStatus, VariantRecord
from profiles.store import Store, owner_token
from profiles.store.taken import Taken
from profiles.vocabulary import Interval, Quality, TrialStatus

Lines = list[str]
CONFIRMING = replace(MEASUREMENT, conditions="loaded")
QUALITY = QualityKey("cd" * 32, (("kv", "f16"),), "ref", "1", "sim 1")


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """An empty store elsewhere."""
    return Store.open(tmp_path / "elsewhere" / "cputune.sqlite3")


@pytest.fixture
def searched(store: Store, study: StudyRecord) -> StudyRecord:
    """A study of a whole search: trials, rounds with and without a trial, a comparison, a profile."""
    store.save_variant(
        VariantRecord(MODEL.digest, "simulated", "q8_0", "cd" * 32, {"q8_0": 9}, 8.5, 99, {"type": "q8_0"})
    )
    store.save_quality(QUALITY, Quality(0.0, float("inf"), 1.0, 0.9, 1.0, 64))
    first = store.start_trial(study.id, FAST, owner_token(), stage="guided")
    store.finish_trial(
        first.id, TrialStatus.COMPLETE, objective_value=800.0, measurement=MEASUREMENT, rounds=[ROUND] * 2
    )
    second = store.start_trial(study.id, DEFAULT, owner_token())
    store.finish_trial(second.id, TrialStatus.CRASH, reason="signal 11")
    store.add_rounds(CONFIRMING, [replace(ROUND, kind="full", dropped="steal")])
    comparison = store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
    store.add_pair(comparison.id, [2.0], [1.0], facts={"x": 1})
    store.finish_comparison(comparison.id, Interval(1.2, 1.1, 1.3, 0.95), "b")
    store.publish(replace(PROFILE, study_id=study.id, comparison_id=comparison.id, trial_ids=(first.id,)))
    return store.finish_study(study.id, StudyStatus.CONFIRMED, {"best": {"id": 1}})


def told(store: Store, *wanted: str) -> Lines:
    return [json.dumps(document) for document in store.bundle(wanted)]


def take(store: Store, lines: Iterable[str]) -> list[Taken]:
    return [taken for place, found in read_lines(lines, "f") for taken in store.take_in(found, place)]


def outcomes(taken: Iterable[Taken]) -> set[str]:
    return {one.outcome for one in taken}


def test_a_whole_study_arrives_with_its_samples(store: Store, searched: StudyRecord, other: Store) -> None:
    assert outcomes(take(other, told(store))) == {"added"}
    assert other.study(searched.id) == store.study(searched.id)
    ours, theirs = store.trials(searched.id), other.trials(searched.id)
    assert [replace(trial, id=0) for trial in theirs] == [replace(trial, id=0) for trial in ours]
    assert other.rounds(MEASUREMENT.key) == store.rounds(MEASUREMENT.key) != ()
    assert other.trial_rounds(theirs[0].id) == (ROUND,) * 2
    assert other.rounds(CONFIRMING.key) == store.rounds(CONFIRMING.key) != ()
    (comparison,) = other.comparisons(searched.id)
    assert (comparison.interval, comparison.verdict) == (Interval(1.2, 1.1, 1.3, 0.95), "b")
    assert other.pairs(comparison.id)[0].facts == {"x": 1}
    (profile,) = other.profiles()
    (published,) = store.profiles()
    assert profile == replace(published, trial_ids=(theirs[0].id,), comparison_id=comparison.id)
    assert other.machines()[0].document == store.machines()[0].document
    assert other.models() == store.models()
    assert other.variants(MODEL.digest) == store.variants(MODEL.digest)
    assert other.quality(QUALITY) == store.quality(QUALITY)


def test_one_study_brings_all_that_it_rests_on(store: Store, searched: StudyRecord, other: Store) -> None:
    store.open_study(renamed(SPEC, "another"), owner_token())
    take(other, told(store, store.profiles()[0].id))
    assert [study.id for study in other.studies()] == [searched.id]
    assert len(other.rounds(MEASUREMENT.key)) == 2
    assert len(other.rounds(CONFIRMING.key)) == 1
    assert other.profiles()[0].trial_ids == (other.trials(searched.id)[0].id,)
    with pytest.raises(NotFoundError, match="no study 's-nothing'"):
        told(store, "s-nothing")


def test_a_second_time_changes_nothing(store: Store, searched: StudyRecord, other: Store) -> None:
    lines = told(store)
    take(other, lines)
    assert outcomes(take(other, lines)) == {"known"}
    assert outcomes(take(store, lines)) == {"known"}
    assert told(other) == lines


def test_what_went_on_is_added(store: Store, searched: StudyRecord, other: Store) -> None:
    open_trial = store.start_trial(searched.id, DEFAULT, owner_token())
    take(other, told(store))
    store.finish_trial(open_trial.id, TrialStatus.COMPLETE, objective_value=1.0)
    store.start_trial(searched.id, FAST, owner_token())
    store.invalidate_trial(store.trials(searched.id)[0].id, "fan stopped")
    assert "extended" in outcomes(take(other, told(store)))
    assert [trial.status for trial in other.trials(searched.id)] == [
        TrialStatus.INVALID, TrialStatus.CRASH, TrialStatus.COMPLETE, TrialStatus.RUNNING,
    ]  # fmt: skip
    assert "fan stopped" in (other.profiles()[0].invalidated or "")
    # The store that is behind has nothing new to say.
    assert outcomes(take(store, told(other))) == {"known"}


def test_a_study_that_went_on_in_both_is_refused(store: Store, searched: StudyRecord, other: Store) -> None:
    take(other, told(store))
    for one in (store, other):
        one.start_trial(searched.id, DEFAULT, owner_token())
    before = other.trials(searched.id)
    refused = [taken for taken in take(other, told(store)) if taken.outcome == "refused"]
    assert [(one.what, one.name) for one in refused] == [("study", searched.id)]
    assert "went on in both stores: trial 2" in refused[0].note
    assert other.trials(searched.id) == before


def test_names_that_are_taken_are_told(store: Store, searched: StudyRecord, other: Store) -> None:
    other.save_model(replace(MODEL, digest="99" * 32), "b.gguf", "tiny")
    taken = take(other, told(store))
    assert [one.note for one in taken if one.what == "model"] == ["'tiny' is another model here"]
    assert other.model("tiny").info.digest == "99" * 32
    assert other.model(MODEL.digest).name == f"tiny@{MODEL.digest[:12]}"


def test_the_same_question_searched_in_both_becomes_two_studies(
    store: Store, searched: StudyRecord, other: Store
) -> None:
    other.save_machine(MACHINE, "host")
    other.save_model(MODEL, "package:tiny", "tiny")
    own = other.open_study(SPEC, owner_token())
    take(other, told(store))
    assert {study.id for study in other.studies()} == {own.id, searched.id}
    assert other.study(searched.id).storage_name != own.storage_name


def test_samples_of_anothers_wrong_trial_stay(store: Store, searched: StudyRecord, other: Store) -> None:
    second = store.open_study(renamed(SPEC, "another"), owner_token())
    trial = store.start_trial(second.id, FAST, owner_token())
    store.finish_trial(trial.id, TrialStatus.COMPLETE, measurement=MEASUREMENT, rounds=[ROUND] * 3)
    store.invalidate_trial(trial.id, "wrong")
    take(other, told(store, searched.id))
    assert len(other.rounds(MEASUREMENT.key)) == 2
    # Told whole, they come with their trial, and stay unread.
    take(other, told(store))
    assert len(other.rounds(MEASUREMENT.key)) == 2
    assert len(other.trial_rounds(other.trials(second.id)[0].id)) == 3


START = {"schema_version": 1, "kind": "bundle"}
END = {"schema_version": 1, "kind": "end"}


def alone(*documents: dict[str, Any]) -> Lines:
    """Documents as a bundle of their own."""
    return [json.dumps(one) for one in (START, *documents, END | {"documents": len(documents)})]


Change = Callable[[list[dict[str, Any]]], object]


def document_of(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(document for document in documents if document["kind"] == kind)


def set_key(kind: str, path: tuple[str | int, ...], value: object) -> Change:
    def change(documents: list[dict[str, Any]]) -> None:
        part: Any = document_of(documents, kind)
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (set_key("study", ("trials", 1, "status"), "fine"), r"f:6: trials\.1\.status: .*got 'fine'"),
        (set_key("study", ("colour",), "red"), r"f:6: colour: Extra inputs"),
        (set_key("study", ("schema_version",), 2), r"f:6: schema_version; got 2; .* newer cputune"),
        (set_key("study", ("created_at",), "2026-01-01"), r"f:6: created_at: "),
        (set_key("study", ("kind",), "poem"), r"f:6: kind; got 'poem'; allowed: machine, model"),
        (set_key("machine", ("schema_version",), 9), r"f:2: .*schema_version"),
        (set_key("machine", ("created_at",), "soon"), r"f:2: created_at; got 'soon'"),
        (set_key("rounds", ("rounds", 0, "gaps_ms"), "x"), r"f:7: rounds\.0\.gaps_ms: "),
        (set_key("study", ("objectives", 0, "metric"), "joy"), r"f:6: objectives\.0: .* metric 'joy'"),
        (set_key("study", ("limits", 0, "metric"), "joy.p50"), r"f:6: limits\.0: .* metric 'joy\.p50'"),
        (set_key("end", ("documents",), 3), r"f:9: documents; got 3; allowed: 7"),
        (lambda documents: documents.pop(0), r"f:1: kind; got 'machine'; allowed: bundle in the"),
        (lambda documents: documents.insert(3, documents[0]), r"f:4: kind; got 'bundle'"),
        (lambda documents: documents.pop(), r"f ends after 7 documents without its last line"),
        (lambda documents: documents.pop(5), r"f:8: documents; got 7; allowed: 6"),
    ],
)
def test_d06_a_damaged_bundle_is_refused_by_its_place(
    store: Store, searched: StudyRecord, change: Change, expected: str
) -> None:
    documents: Any = [dict(document) for document in store.bundle()]
    change(documents)
    with pytest.raises(DocumentError, match=expected):
        list(read_lines(map(json.dumps, documents), "f"))


@pytest.mark.parametrize("line", ["", "{", "[1]", "7", '{"kind": 7}'])
def test_lines_that_are_no_documents(line: str) -> None:
    with pytest.raises(DocumentError, match="f:1"):
        list(read_lines([line], "f"))


@pytest.mark.parametrize(
    ("kind", "dropped", "expected"),
    [
        ("study", "measurements", r"f:5: trials\.0\.measurement_key: no such measurement"),
        ("rounds", "measurements", r"rounds\.0\.measurement: no such measurement"),
        ("profile", "model", r"model: not in this store; got '(ab)+'; import the model first"),
        ("profile", "machine", r"machine: not in this store; got 'f00d'"),
    ],
)
def test_what_something_refers_to_must_be_there(
    store: Store, searched: StudyRecord, other: Store, kind: str, dropped: str, expected: str
) -> None:
    documents: Any = [d for d in store.bundle() if d["kind"] != dropped]
    if kind != "study":
        documents = [d for d in documents if d["kind"] != "study"]
    documents[-1]["documents"] = len(documents) - 2
    if kind == "profile":
        documents = [d for d in documents if d["kind"] in ("bundle", "machine", "model", "profile")]
        documents.append(END | {"documents": len(documents) - 1})
    with pytest.raises(DocumentError, match=expected):
        take(other, map(json.dumps, documents))


def test_a_profile_alone_says_where_it_came_from(store: Store, searched: StudyRecord, other: Store) -> None:
    store.invalidate_trial(store.trials(searched.id)[0].id, "wrong")
    document = profile_document(store.profiles()[0])
    model = document_of(list(store.bundle()), "model")
    lines = alone(machine_document(MACHINE), model, document)
    take(other, lines)
    (profile,) = other.profiles()
    assert (profile.id, profile.study_id) == (document["id"], None)
    assert profile.facts["origin_study"] == searched.id
    # The doubt came with it, though its trials did not.
    assert "declared wrong" in (profile.invalidated or "")
    assert outcomes(take(other, lines)) == {"known"}


def test_a_profile_without_an_id_is_stored_once(store: Store) -> None:
    lines = alone(profile_document(PROFILE))
    assert outcomes(take(store, lines)) == {"added"}
    assert outcomes(take(store, lines)) == {"known"}
    assert len(store.profiles()) == 1
