"""Profiles: published, found, answered with; honest about invalidated trials."""

from dataclasses import replace

import pytest
from store_examples import FAST, MACHINE, MEASUREMENT, MODEL, PROFILE, ROUND, SPEC, renamed

from profiles.errors import NotFoundError
from profiles.records import Measurement, Profile, ProfileRecord, ProfileStatus, StudyRecord
from profiles.store import Store, owner_token
from profiles.vocabulary import WORKLOADS, Limit, Objective, TrialStatus, Workload


def measured(store: Store, study_id: str, measurement: Measurement | None = MEASUREMENT) -> int:
    trial = store.start_trial(study_id, FAST, owner_token())
    store.finish_trial(
        trial.id,
        TrialStatus.COMPLETE,
        objective_value=1.0,
        measurement=measurement,
        rounds=[ROUND] if measurement else [],
    )
    return trial.id


def best(store: Store, **asked: object) -> ProfileRecord | None:
    question = {
        "fingerprint": MACHINE.fingerprint,
        "model_digest": MODEL.digest,
        "workload": WORKLOADS["chat"],
        "objectives": SPEC.objectives,
        "quality_level": "near-lossless",
        "limits": SPEC.limits,
    }
    return store.best_profile(**{**question, **asked})


def test_a_profile_comes_back_as_it_was_published(store: Store, study: StudyRecord) -> None:
    trials = (measured(store, study.id), measured(store, study.id))
    comparison = store.start_comparison(study.id, FAST, FAST, "response_ms")
    given = replace(
        PROFILE,
        study_id=study.id,
        trial_ids=trials,
        comparison_id=comparison.id,
        facts={"note": "quiet night"},
    )
    published = store.publish(given)
    for name in Profile.__dataclass_fields__:
        assert getattr(published, name) == getattr(given, name), name
    assert published.id.startswith("p-")
    assert published.lineage == study.key
    assert published.invalidated is None
    assert store.profile(published.id) == store.profile(published.id[:6]) == published
    assert store.profiles() == (published,)
    assert best(store) == published


def test_a_profile_from_elsewhere_has_no_study(store: Store) -> None:
    published = store.publish(PROFILE)
    assert (published.study_id, published.trial_ids, published.lineage) == (None, (), published.id)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"fingerprint": "x"}, "machine"),
        ({"model_digest": "x"}, "model"),
        ({"study_id": "x"}, "study"),
        ({"trial_ids": (77,)}, "trial"),
    ],
)
def test_a_profile_refers_to_stored_things(store: Store, change: dict[str, object], what: str) -> None:
    with pytest.raises(NotFoundError, match=f"no {what} "):
        store.publish(replace(PROFILE, **change))
    assert store.profiles() == ()


def test_an_unknown_profile_lists_near_ones(store: Store) -> None:
    published = store.publish(PROFILE)
    store.publish(PROFILE)
    with pytest.raises(NotFoundError, match=f"no profile '{published.id}0'; near: {published.id}"):
        store.profile(f"{published.id}0")
    with pytest.raises(NotFoundError, match="'p-' is the beginning of 2 names"):
        store.profile("p-")


def test_profiles_are_listed_newest_first_filtered_and_paged(store: Store, study: StudyRecord) -> None:
    first = store.publish(PROFILE)
    second = store.publish(replace(PROFILE, study_id=study.id))
    third = store.publish(replace(PROFILE, workload=WORKLOADS["rag"]))
    assert store.profiles() == (third, second, first)
    assert store.profiles(limit=1, offset=1) == (second,)
    assert store.profiles(study_id=study.id) == (second,)
    assert store.profiles(workload=WORKLOADS["rag"]) == store.profiles(workload_name="rag") == (third,)
    assert len(store.profiles(fingerprint=MACHINE.fingerprint, model_digest=MODEL.digest)) == 3
    assert store.profiles(fingerprint="x") == store.profiles(model_digest="x") == ()


@pytest.mark.parametrize(
    "other",
    [
        {"fingerprint": "x"},
        {"model_digest": "x"},
        {"workload": WORKLOADS["rag"]},
        {"objectives": (Objective("ttft_ms"),)},
        {"objectives": (Objective("response_ms", "maximize"),)},
        {"quality_level": "any"},
        {"limits": ()},
        {"limits": (Limit("peak_rss_mib", "<=", 501.0),)},
    ],
)
def test_s07_another_question_has_no_answer(store: Store, other: dict[str, object]) -> None:
    store.publish(PROFILE)
    assert best(store, **other) is None


def test_the_same_question_in_other_words(store: Store) -> None:
    limits = (Limit("ttft_ms", "<=", 100.0), Limit("peak_rss_mib", "<=", 500.0))
    metrics = {**PROFILE.metrics, "ttft_ms.p50": 50.0}
    published = store.publish(replace(PROFILE, limits=limits, metrics=metrics))
    talk = Workload("talk", 128, 128, objective="ttft_ms")
    assert best(store, workload=talk, limits=limits[::-1]) == published


def test_quiet_and_loaded_answers_stand_side_by_side(store: Store, study: StudyRecord) -> None:
    quiet = store.publish(replace(PROFILE, study_id=study.id))
    loaded = store.publish(replace(PROFILE, study_id=study.id, conditions="loaded"))
    assert best(store) == quiet
    assert best(store, prefer="loaded") == loaded


def test_engines_can_be_kept_out(store: Store) -> None:
    published = store.publish(PROFILE)
    assert best(store, engines={"simulated", "x"}) == published
    assert best(store, engines={"x"}) is None


def test_s11_a_profile_on_an_invalidated_trial_says_so(store: Store, study: StudyRecord) -> None:
    good, wrong = measured(store, study.id, None), measured(store, study.id, None)
    sound = store.publish(replace(PROFILE, study_id=study.id, trial_ids=(good,)))
    shaky = store.publish(replace(PROFILE, study_id=study.id, trial_ids=(good, wrong)))
    assert best(store) == shaky
    store.invalidate_trial(wrong, "zero tokens")
    expected = f"rests on trial {wrong}, declared wrong: zero tokens"
    assert store.profile(shaky.id).invalidated == expected
    assert [profile.invalidated for profile in store.profiles()] == [expected, None]
    assert best(store) == sound


def test_s11_shared_samples_carry_the_doubt_to_other_studies(store: Store, study: StudyRecord) -> None:
    wrong = measured(store, study.id)
    other = store.open_study(renamed(SPEC, "other"), owner_token())
    reusing = measured(store, other.id)
    published = store.publish(replace(PROFILE, study_id=other.id, trial_ids=(reusing,)))
    later = measured(store, other.id)
    store.invalidate_trial(later, "came after the profile")
    assert store.profile(published.id).invalidated is None
    store.invalidate_trial(wrong, "zero tokens")
    assert store.profile(published.id).invalidated == f"rests on trial {wrong}, declared wrong: zero tokens"


def test_s11_every_wrong_trial_under_a_profile_is_told(store: Store, study: StudyRecord) -> None:
    one, other = measured(store, study.id, None), measured(store, study.id, None)
    published = store.publish(replace(PROFILE, study_id=study.id, trial_ids=(one, other)))
    store.invalidate_trial(other, "zero tokens")
    store.invalidate_trial(one, "the fan stood still")
    assert store.profile(published.id).invalidated == (
        f"rests on trial {one}, declared wrong: the fan stood still;"
        f" on trial {other}, declared wrong: zero tokens"
    )


def test_s11_declaring_a_trial_wrong_once_more_casts_no_doubt_on_what_came_since(
    store: Store, study: StudyRecord
) -> None:
    wrong = measured(store, study.id)
    first = store.invalidate_trial(wrong, "zero tokens").invalidated_at
    anew = measured(store, study.id)
    published = store.publish(replace(PROFILE, study_id=study.id, trial_ids=(anew,)))
    again = store.invalidate_trial(wrong, "no token at all")
    assert (again.invalidated_at, again.reason) == (first, "no token at all")
    assert store.profile(published.id).invalidated is None


def test_s07_a_limit_that_is_not_shown_to_be_kept_is_no_answer(store: Store) -> None:
    store.publish(replace(PROFILE, metrics={"response_ms.p50": 1.0, "peak_rss_mib": 501.0}))
    store.publish(replace(PROFILE, metrics={"response_ms.p50": 1.0}))
    store.publish(replace(PROFILE, metrics={"response_ms.p50": float("nan"), "peak_rss_mib": 1.0}))
    assert best(store) is None


def test_no_gain_is_an_answer(store: Store) -> None:
    published = store.publish(replace(PROFILE, status=ProfileStatus.NO_GAIN, speedup=None, quality=None))
    assert best(store) == published
