"""`--storage`: every command that reads a store reads the one that is named, and makes none by mistake."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.flow import Flow
from tuner.cli.main import run

READING = (
    "show s-1", "plot s-1 --out x.html", "history", "export p-1", "recommend", "invalidate 1", "models list",
    "models remove x", "db check", "db backup", "db export", "db upgrade", "verify p-1 --url http://127.0.0.1:9",
)  # fmt: skip


@pytest.mark.parametrize("call", READING)
def test_a_missing_database_is_refused_and_not_made(
    call: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "not" / "there"
    assert run([*call.split(), "--storage", str(folder / "x.sqlite3")]) == 3
    answer = capsys.readouterr()
    assert (answer.out, len(answer.err.splitlines())) == ("", 1)
    assert f"no database of cputune at {folder / 'x.sqlite3'}" in answer.err
    assert not (tmp_path / "not").exists()
    assert not home.exists()


def test_a_search_makes_it_and_says_so(
    flow: Flow, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "new" / "x.sqlite3"
    call = ["search", "--model", str(flow.model), "--engines", "simulated", "--variants", "source"]
    assert run([*call, "--trials", "1", "--budget", "10s", "--storage", str(place), "--json"]) == 0
    captured = capsys.readouterr()
    assert f"made a new database: {place}" in captured.err
    study = json.loads(captured.out)["study"]
    assert not flow.home.database.exists()
    assert run(["show", study, "--storage", f"sqlite:///{place}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == study


def test_show_plot_export_and_models_read_the_named_one(
    flow_after: Flow,
    finished: tuple[Path, dict[str, object]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = tmp_path / "moved.sqlite3"
    with flow_after.store() as store:
        store.backup(place)
        profile = store.profiles()[0].id
    shutil.rmtree(flow_after.home.root)
    for call in (
        ["show", profile],
        ["plot", profile, "--out", str(tmp_path / "x.html")],
        ["models", "list"],
    ):
        run([*call, "--storage", str(place), "--json"])
        captured = capsys.readouterr()
        assert captured.err == ""
        assert json.loads(captured.out)
    assert run(["export", profile, "--format", "json", "--storage", str(place)]) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "simulated"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://root@localhost/x", "mysql is not supported; give a path"),
        ("oracle+what://x", "oracle is not supported"),
        ("sqlite://", "give the path of a file"),
    ],
)
def test_another_kind_of_database_is_said_plainly(
    url: str, says: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["history", "--storage", url]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert "MySQLdb" not in line
