"""A published profile can be taken elsewhere, and what can't be is said."""

import json
from dataclasses import replace

import pytest
import yaml

from tests.support.flow import Flow
from tuner.cli.main import run


@pytest.fixture
def profile_id(flow_after: Flow) -> str:
    with flow_after.store() as store:
        return store.profiles()[0].id


def test_a_profile_is_exported_with_the_file_it_runs_on(profile_id: str, capsys: pytest.CaptureFixture[str]):
    assert run(["export", profile_id, "--format", "yaml"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["engine"] == "simulated"
    assert run(["export", profile_id, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    # What YAML says in comments stands in a key of its own.
    assert {**printed, "remarks": None} == {**document, "remarks": None}


def test_a_target_that_runs_another_engine_is_refused(profile_id: str, capsys: pytest.CaptureFixture[str]):
    assert run(["export", profile_id, "--format", "llama-server"]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert "this configuration is for simulated" in answer.err


@pytest.mark.parametrize(
    ("variant", "quality_level", "code", "says"),
    [
        ("q9_9", "any", 4, "simulated makes no variant 'q9_9' of tiny"),
        ("source", "perfect", 2, "unknown quality level 'perfect'"),
    ],
)
def test_what_only_another_version_knows_is_one_line(
    flow_after: Flow,
    capsys: pytest.CaptureFixture[str],
    variant: str,
    quality_level: str,
    code: int,
    says: str,
):
    with flow_after.store() as store:
        known = store.profiles()[0]
        config = replace(known.config, variant=variant)
        came = store.publish(replace(known, config=config, quality_level=quality_level))
    assert run(["export", came.id]) == code
    answer = capsys.readouterr()
    assert (answer.out, len(answer.err.splitlines())) == ("", 1)
    assert says in answer.err


def test_unknown_formats_and_profiles_are_one_line(profile_id: str, capsys: pytest.CaptureFixture[str]):
    assert run(["export", profile_id, "--format", "llama-sever"]) == 2
    assert "did you mean llama-server?" in capsys.readouterr().err
    assert run(["export", "p-nothing"]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1
