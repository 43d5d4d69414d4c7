"""A search whose record is on PostgreSQL: searched, known again, listed, checked, moved to a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiles.records import StudyStatus
from profiles.store import Store
from tests.support.flow import Flow
from tuner.cli.main import run
from tuner.request import without_password


@pytest.mark.usefixtures("quick_quality")
def test_a_search_and_its_history(flow: Flow, postgres_url: str, tmp_path: Path, capsys) -> None:
    document = flow.search(storage=postgres_url)
    assert not flow.home.database.exists()
    with Store.open(postgres_url) as store:
        study = store.study(document["study"])
        assert study.status is StudyStatus(document["status"])
        assert len(store.trials(study.id)) == sum(document["trials"].values())
        assert store.profiles()[0].id == document["best"]["profile_id"]
    assert flow.search(storage=postgres_url, bounded=False)["measured_now"] is False
    capsys.readouterr()
    assert run(["history", "--storage", postgres_url, "--json"]) == 0
    assert [row["study"] for row in json.loads(capsys.readouterr().out)["studies"]] == [study.id]
    assert run(["db", "check", "--storage", postgres_url, "--json"]) == 0
    checks = {one["check"]: one["state"] for one in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["index"] == "ok", "Optuna's tables are on the server too, and know every trial"
    file = tmp_path / "x.jsonl"
    assert run(["db", "export", "--storage", postgres_url, "--out", str(file)]) == 0
    assert run(["db", "import", str(file)]) == 0
    with flow.store() as local:
        assert local.study(study.id) == study
    assert run(["db", "backup", "--storage", postgres_url]) == 1
    assert "use pg_dump" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("postgresql://me:secret@host/x?a=b", "postgresql://me@host/x?a=b"),
        ("postgresql://me@host/x", "postgresql://me@host/x"),
        ("sqlite:////a:b@c/x.sqlite3", "sqlite:////a:b@c/x.sqlite3"),
        ("/a:b@c/x", "/a:b@c/x"),
    ],
)
def test_a_password_is_not_printed(given: str, printed: str) -> None:
    assert without_password(given) == printed
