"""A measurement declared wrong takes its profile with it, everywhere, and is measured anew."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from tests.support.flow import Flow
from tuner.cli.documents import schemas
from tuner.cli.main import run

BOUNDED = {"bounded": False, "trials": None}


@pytest.fixture
def profile(flow_after: Flow) -> tuple[str, str, int]:
    """The published profile, its study, and the number of a trial that it rests on."""
    with flow_after.store() as store:
        published = store.profiles()[0]
        assert published.study_id is not None
        trial = store.trial(published.trial_ids[0])
        return published.id, published.study_id, trial.number


def test_s11_a_wrong_trial_takes_its_profile_with_it(
    flow_after: Flow, profile: tuple[str, str, int], capsys: pytest.CaptureFixture[str], quick_quality: None
) -> None:
    profile_id, study, number = profile
    assert flow_after.search(**BOUNDED)["measured_now"] is False
    assert run(["invalidate", f"{study}/{number}", "--reason", "the fan\nstood still", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["study"], document["number"], document["profiles"]) == (study, number, [profile_id])
    assert document["reason"] == "the fan stood still"
    assert list(Draft202012Validator(schemas()["invalidate"]).iter_errors(document)) == []

    for wanted in (profile_id, study):
        assert run(["show", wanted]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert f"Not to be trusted: {profile_id} rests on trial {document['trial']}" in out
        assert "the fan stood still" in out
    assert run(["history"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    why = f"rests on trial {document['trial']}, declared wrong: the fan stood still"
    assert f"not to be trusted: it {why}" in listed
    assert run(["history", "--json"]) == 0
    assert "the fan stood still" in json.loads(capsys.readouterr().out)["studies"][0]["invalidated"]
    assert run(["recommend", "--engines", "simulated", "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["basis"] == "default"
    assert any(profile_id in reason and "the fan stood still" in reason for reason in advice["reasons"])

    again = flow_after.search(trials=3)
    assert f"{profile_id} rests on trial" not in flow_after.notes
    assert again["measured_now"]
    fresh = again["best"]["profile_id"]
    with flow_after.store() as store:
        assert store.profile(fresh).invalidated is None
        assert document["trial"] not in store.profile(fresh).trial_ids
    assert flow_after.search(**BOUNDED)["best"]["profile_id"] == fresh


def test_a_second_search_says_why_it_measures_anew(
    flow_after: Flow, profile: tuple[str, str, int], quick_quality: None
) -> None:
    profile_id, study, number = profile
    assert run(["invalidate", f"{study}/{number}"]) == 0
    flow_after.search(pairs=3, bounded=False, trials=3)
    assert f"{profile_id} rests on trial" in flow_after.notes
    assert "measuring anew" in flow_after.notes


def test_a_trial_that_nothing_rests_on(
    flow_after: Flow, profile: tuple[str, str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    with flow_after.store() as store:
        rests = store.profiles()[0].trial_ids
        other = next(trial for trial in store.trials(profile[1]) if trial.id not in rests)
    assert run(["invalidate", str(other.id)]) == 0
    out = capsys.readouterr().out
    assert f"Trial {other.number} of {profile[1]}" in out
    assert "No published profile rests on it." in out


@pytest.mark.parametrize(
    ("trial", "code", "says"),
    [
        ("abc", 2, "'abc' names no trial: write STUDY/NUMBER"),
        ("/3", 2, "'/3' names no trial"),
        ("s-1/x", 2, "'s-1/x' names no trial"),
        ("999", 3, "no trial '999' in the store"),
        ("s-none/1", 3, "no study 's-none'"),
    ],
)
def test_unknown_trials_are_one_line(
    trial: str, code: int, says: str, flow_after: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["invalidate", trial]) == code
    answer = capsys.readouterr()
    assert (answer.out, len(answer.err.splitlines())) == ("", 1)
    assert says in answer.err


def test_a_number_that_the_study_has_not(
    flow_after: Flow, profile: tuple[str, str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["invalidate", f"{profile[1]}/99"]) == 3
    assert f"study {profile[1]} has no trial 99: its trials are 0 to" in capsys.readouterr().err
