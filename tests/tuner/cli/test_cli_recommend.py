"""`cputune recommend`: advice for this machine and for another one, in three forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from probes.machine import probe
from tests.support.flow import Flow
from tuner.cli.documents import schemas
from tuner.cli.main import run
from tuner.engines.llama_cpp.describe import LlamaCpp


def other_machine(path: Path, **changes: object) -> str:
    document = {**probe().to_json(), "fingerprint": "elsewhere", "model_name": "Other CPU", **changes}
    path.write_text(json.dumps(document))
    return str(path)


def test_the_published_answer(flow_after: Flow, capsys: pytest.CaptureFixture[str]) -> None:
    with flow_after.store() as store:
        profile = store.profiles()[0]
    assert run(["recommend", "--engines", "simulated", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) >= {"schema_version", "basis", "distance", "reasons", "profile"}
    assert (document["basis"], document["distance"], document["profile"]["id"]) == ("exact", 0, profile.id)
    assert document["profile"]["config"] == profile.config.as_dict()
    assert list(Draft202012Validator(schemas()["recommend"]).iter_errors(document)) == []
    assert run(["recommend", "--engines", "simulated"]) == 0
    assert "an answer to exactly this question" in capsys.readouterr().out


def test_another_machine(flow_after: Flow, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = other_machine(tmp_path / "other.json")
    assert run(["recommend", "--engines", "simulated", "--machine", file]) == 0
    out = capsys.readouterr().out
    assert "on Other CPU: the answer of a similar machine" in out
    assert "measured on another machine" in out
    assert "To measure it on that machine: cputune search --model tiny" in out
    assert run(["recommend", "--engines", "simulated", "--machine", file, "--format", "json"]) == 0
    exported = json.loads(capsys.readouterr().out)
    assert exported["engine"] == "simulated"
    assert any("put your file's path in the place of" in remark for remark in exported["remarks"])


def test_it_works_without_the_model_s_file_or_an_engine(
    flow_after: Flow, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with flow_after.store() as store:
        info = store.model("tiny").info
        store.save_model(info, "/gone/tiny.gguf", "tiny")
    monkeypatch.setattr(LlamaCpp, "probe_code", lambda _self: "import no_such_engine")
    assert run(["recommend", "--model", "tiny", "--format", "llama-server"]) == 0
    out = capsys.readouterr().out
    assert "# these are llama_cpp's own defaults" in out
    assert "here it could not be made" in out
    assert "llama-server \\\n  -m tiny.gguf" in out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is neither JSON nor YAML"),
        ("[]", "holds no machine: a mapping is expected"),
        ('{"kind": "bundle"}\n{"kind": "end"}', "holds no machine: cputune db export wrote it"),
        ('{"kind": "profile", "schema_version": 1}', "kind; got 'profile'; allowed: machine"),
        ('{"schema_version": 99, "fingerprint": "x"}', "no schema_version that this cputune reads"),
        ('{"schema_version": 1}', "has no fingerprint"),
        ('{"schema_version": 1, "fingerprint": "x", "physical_cores": "four"}', "machine.physical_cores"),
    ],
)
def test_a_damaged_machine_is_one_line(
    content: str, says: str, flow_after: Flow, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "machine.json"
    file.write_text(content)
    assert run(["recommend", "--machine", str(file)]) == 2
    answer = capsys.readouterr()
    assert (answer.out, len(answer.err.splitlines())) == ("", 1)
    assert says in answer.err


def test_a_folder_is_a_recorded_machine_or_none(
    flow_after: Flow, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["recommend", "--machine", str(tmp_path)]) == 2
    assert "allowed is a folder with a recorded proc and sys" in capsys.readouterr().err
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Recorded CPU\n\n")
    assert run(["recommend", "--machine", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machine"]["label"] == "Recorded CPU"


def test_unknown_models_and_formats_are_one_line(
    flow_after: Flow, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["recommend", "--model", "tinny"]) == 4
    assert "did you mean tiny?" in capsys.readouterr().err
    assert run(["recommend", "--format", "llama-sever"]) == 2
    assert "did you mean llama-server?" in capsys.readouterr().err
    assert run(["recommend", "--format", "yaml", "--json"]) == 2
    assert "--format yaml and --json ask for two answers" in capsys.readouterr().err
