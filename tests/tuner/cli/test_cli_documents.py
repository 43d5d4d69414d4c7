"""What --json prints keeps to the schemas in docs/schemas."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from profiles.documents import profile_document
from tests.probes.trees import CPU, Tree
from tests.support.flow import Flow
from tuner.cli import documents, documents_past
from tuner.cli.documents import schemas
from tuner.cli.main import run

Check = Callable[..., dict[str, Any]]


@pytest.fixture
def keeps(capsys: pytest.CaptureFixture[str]) -> Check:
    """Runs a command and holds its document to a schema."""

    def checked(schema: str, *arguments: str) -> dict[str, Any]:
        assert run([*arguments, "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert faults(schema, document) == []
        return document

    return checked


def faults(schema: str, document: object) -> list[str]:
    found = Draft202012Validator(schemas()[schema]).iter_errors(document)
    return [f"{error.json_path}: {error.message}" for error in found]


def test_commands_keep_to_their_schemas(flow_after: Flow, finished: Any, keeps: Check):
    study, profile = finished[1]["study"], finished[1]["best"]["profile_id"]
    keeps("search", "search", "--model", "tiny", "--engines", "simulated")
    keeps("probe", "probe")
    assert keeps("history", "history")["studies"]
    keeps("history-diff", "history", "--diff", study, study)
    assert keeps("show", "show", study, "--trials")["trials"]
    assert keeps("show", "show", profile)["profile"]
    keeps("db-check", "db", "check")


def test_engines_keep_to_their_schema(home: Any, keeps: Check, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tuner.engines.BUILT_IN", {"simulated": "tuner.engines.simulated.describe:Simulated"})
    keeps("engines", "engines")


def test_a_recorded_machine_keeps_to_the_schema(tmp_path: Any, keeps: Check):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor : 0\nmodel name : X\nflags : sse2\n")
    assert keeps("probe", "probe", "--root", str(tmp_path))["caches"] == []


def test_a_cache_whose_sharing_is_not_told_keeps_to_the_schema(tmp_path: Any, keeps: Check, capsys):
    Tree(tmp_path).plain(1)
    for name, value in (("level", "3"), ("type", "Unified"), ("size", "48M")):
        Tree(tmp_path).write(f"{CPU}/cpu0/cache/index0/{name}", value)
    (cache,) = keeps("probe", "probe", "--root", str(tmp_path))["caches"]
    assert (cache["size_bytes"], cache["instances"]) == (48 << 20, None)
    assert run(["probe", "--root", str(tmp_path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("caches")]
    assert line.split(maxsplit=1)[1] == "L3 48 MiB"


def test_profiles_and_bundles_keep_to_their_schemas(flow_after: Flow, capsys):
    with flow_after.store() as store:
        assert faults("profile", profile_document(store.profiles()[0])) == []
    assert run(["db", "export"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = {line["kind"] for line in lines}
    assert kinds >= {"bundle", "machine", "model", "study", "rounds", "profile", "end"}
    for line in lines:
        assert faults("probe" if line["kind"] == "machine" else "bundle-line", line) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("status", "great"), ("trials", None), ("speedup", {"ratio": 1}), ("schema_version", 2)],
)
def test_a_document_that_breaks_its_schema_is_noticed(finished: Any, key: str, value: object):
    document = {"schema_version": 1, **finished[1], "measured_now": True}
    assert faults("search", document) == []
    assert faults("search", {**document, key: value}) != []


def test_every_model_asks_for_its_version():
    assert all(
        "schema_version" in model.model_fields
        for model in (documents.DOCUMENTS | documents_past.DOCUMENTS).values()
    )
