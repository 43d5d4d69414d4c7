"""`cputune db` after a real (simulated) search: checked, backed up, upgraded, moved."""

import json
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profiles.migrations import LATEST
from profiles.records import StudyStatus
from profiles.store import Store, owner_token
from profiles.vocabulary import Config, TrialStatus
from tests.support.commands import begin, command, loaded_by
from tests.support.flow import Flow
from tests.support.kills import FORK_SERVER
from tuner.cli.main import run
from tuner.home import Home
from tuner.search.record import refresh_index
from tuner.search.recorded import recorded

FIXTURE = Path(__file__).parents[2] / "profiles" / "fixtures" / "schema_0001.sql"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def db(capsys: pytest.CaptureFixture[str]) -> Call:
    """Exit code, stdout and stderr of `cputune db ...`."""

    def called(*arguments: str) -> tuple[int, str, str]:
        code = run(["db", *arguments])
        out = capsys.readouterr()
        return code, out.out, out.err

    return called


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """The path of another store's database."""
    return str(tmp_path / "elsewhere.sqlite3")


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


# --- check ---------------------------------------------------------------------------------------


def findings(db: Call, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code, out, err = db("check", "--json", *arguments)
    assert err == ""
    return code, {one["check"]: one for one in json.loads(out)["checks"]}


def test_a_sound_store_is_a_line_for_each_check(flow_after: Flow, db: Call):
    code, found = findings(db)
    assert code == 0
    assert set(found) == {"schema", "integrity", "references", "running", "index", "models", "variants"}
    assert {one["state"] for one in found.values()} == {"ok"}
    code, out, _ = db("check")
    assert code == 0
    assert len(out.splitlines()) == len(found)
    assert all(line.startswith("ok       ") for line in out.splitlines())


def test_what_a_check_finds_says_what_mends_it(flow_after: Flow, db: Call, finished: Any):
    study = flow_after.study()
    with flow_after.store() as store:
        trial = store.start_trial(study.id, Config.of("simulated", "source", {}), "gone:1:1")
        store.save_model(store.models()[0].info, "/nowhere/x.gguf", "moved")
        published = store.profiles()[0]
    for made in flow_after.home.variants.glob("*.gguf"):
        made.unlink()
    code, found = findings(db)
    assert code == 0
    assert found["running"]["message"].startswith(f"{study.id} ended without a word")
    assert "search again" in found["running"]["fix"]
    assert "cputune models add FILE --name moved" in found["models"]["fix"]
    variant = published.config.variant
    if variant == "source":
        assert found["variants"]["state"] == "ok"
    else:
        assert found["variants"]["fix"] == f"cputune models prepare moved --variants {variant}"
    with flow_after.store() as store:
        assert store.trial(trial.id).finished_at is None, "a check changes nothing"


def test_the_index_is_compared_with_the_record(flow_after: Flow, db: Call):
    sql(flow_after.home.database, "DELETE FROM trial_user_attributes")
    _, found = findings(db)
    assert found["index"]["state"] == "note"
    assert flow_after.study().id in found["index"]["message"]


def test_a_trial_that_optuna_cannot_express_is_no_lack_of_the_index(flow_after: Flow, db: Call):
    """A neighbour of the winner, mapped otherwise than any that was searched, is one."""
    study = flow_after.study()
    with flow_after.store() as store:
        space = recorded(store, study).space
        beyond = space.default("simulated").with_settings(n_threads=999)
        trial = store.start_trial(study.id, beyond, owner_token())
        store.finish_trial(trial.id, TrialStatus.COMPLETE, objective_value=1.0)
        assert findings(db)[1]["index"]["state"] == "note"
        assert refresh_index(store, study, space) == 0
    assert findings(db)[1]["index"]["state"] == "ok"


def test_d06_a_damaged_file_ends_with_1(flow_after: Flow, db: Call):
    sql(flow_after.home.database, "PRAGMA wal_checkpoint(TRUNCATE)")
    with flow_after.home.database.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\xff" * 4096 * 3)
    code, out, err = db("check")
    assert code == 1
    assert "damaged" in out or "malformed" in err
    assert "backup" in out + err


def test_rows_that_refer_to_none_end_with_1(flow_after: Flow, db: Call):
    sql(flow_after.home.database, "DELETE FROM cputune_machine")
    code, found = findings(db)
    assert code == 1
    assert "cputune_study to cputune_machine" in found["references"]["message"]
    assert "index" not in found


def test_an_old_schema_is_said_and_left(home: Path, db: Call, monkeypatch: pytest.MonkeyPatch):
    Store.open(Home(home).database).close()
    monkeypatch.setattr("profiles.migrations.LATEST", "9999")
    code, found = findings(db)
    assert (code, list(found)) == (0, ["schema"])
    assert found["schema"]["fix"] == "cputune db upgrade"


@pytest.mark.parametrize("name", ["check", "backup", "upgrade", "export"])
def test_nothing_to_work_on_is_one_line(home: Path, db: Call, name: str):
    code, out, err = db(name)
    assert (code, out) == (3, "")
    assert "no database of cputune" in err
    assert not Home(home).database.exists()


def test_a_check_loads_no_optuna(flow_after: Flow):
    assert "optuna" not in loaded_by("db", "check")


# --- backup and upgrade --------------------------------------------------------------------------


def test_a_backup_is_made_while_a_search_writes(flow: Flow, db: Call, tmp_path: Path):
    search = begin(
        "search", "--model", str(flow.model), "--engines", "simulated", "--variants", "source,bf16",
        "--budget", "60s", "--trials", "4",
    )  # fmt: skip
    assert search.stderr is not None
    while "  complete" not in search.stderr.readline():
        assert search.poll() is None
    code, out, err = db("backup", str(tmp_path))
    assert (code, err) == (0, "")
    search.terminate()
    search.communicate(timeout=30)
    (made,) = tmp_path.glob("*.backup")
    assert str(made) in out
    with Store.open(made) as copy:
        assert copy.studies()[0].status is StudyStatus.INTERRUPTED
        assert copy.trials(copy.studies()[0].id)


def test_a_backup_has_a_name_of_its_own_and_never_replaces(flow_after: Flow, db: Call, tmp_path: Path):
    code, out, _ = db("backup", "--json")
    made = json.loads(out)
    assert code == 0
    assert Path(made["backup"]).parent == flow_after.home.root
    assert Path(made["backup"]).stat().st_size == made["bytes"]
    target = tmp_path / "mine.sqlite3"
    assert db("backup", str(target))[0] == 0
    before = target.read_bytes()
    code, _, err = db("backup", str(target))
    assert code == 1
    assert "is there already; name another file" in err
    assert target.read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))
    for nowhere in (tmp_path / "no" / "folder", target / "below-a-file"):
        code, _, err = db("backup", str(nowhere))
        assert (code, f"can't back up {flow_after.home.database} to {nowhere}" in err) == (1, True)


def test_d05_an_upgrade_says_where_the_old_one_is(home: Path, db: Call, monkeypatch: pytest.MonkeyPatch):
    home.mkdir()
    with closing(sqlite3.connect(Home(home).database)) as connection:
        connection.executescript(FIXTURE.read_text())
    code, out, _ = db("upgrade")
    done, _, kept = out.removesuffix(".\n").partition("; the old one is kept as ")
    assert (code, done) == (0, f"Upgraded from schema 0001 to {LATEST}")
    assert Path(kept).is_file()
    code, out, _ = db("upgrade", "--json")
    assert (code, json.loads(out)["backup"]) == (0, None)
    assert db("upgrade")[1] == f"Nothing to do: the schema is {LATEST}, the newest.\n"


@pytest.mark.parametrize("name", ["check", "backup", "upgrade", "export"])
def test_d05_a_newer_schema_is_refused_untouched(home: Path, db: Call, name: str):
    Store.open(Home(home).database).close()
    sql(Home(home).database, "UPDATE cputune_alembic_version SET version_num = '9999'")
    before = Home(home).database.read_bytes()
    code, out, err = db(name)
    assert (code, out) == (1, "")
    assert "has schema 9999, left untouched" in err
    assert Home(home).database.read_bytes() == before


# --- export and import ---------------------------------------------------------------------------


def test_a_history_moves_to_another_store(
    flow_after: Flow, db: Call, tmp_path: Path, elsewhere: str, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "all.jsonl"
    assert db("export", "--out", str(file))[0] == 0
    code, out, err = db("import", str(file), "--storage", elsewhere)
    assert (code, err) == (0, "")
    assert out.startswith("Added: 1 machine, 1 model, ")
    assert "1 study" in out
    assert "1 profile" in out
    study = flow_after.study()
    with flow_after.store() as store, Store.open(elsewhere) as other:
        assert other.study(study.id) == study
        keys = {trial.measurement_key for trial in store.trials(study.id)} - {None}
        assert keys
        assert all(other.rounds(key or "") == store.rounds(key or "") for key in keys)
    code, out, _ = db("import", str(file), "--storage", elsewhere, "--json")
    assert (code, {one["outcome"] for one in json.loads(out)["taken"]}) == (0, {"known"})
    assert run(["history", "--storage", elsewhere]) == 0
    assert study.id in capsys.readouterr().out
    code, _, err = db("export", "--out", str(file))
    assert (code, "name a new file" in err) == (1, True)
    code, _, err = db("export", "--out", str(file / "below-a-file"))
    assert (code, f"can't write {file}" in err) == (1, True)


def test_a_study_goes_through_a_pipe(flow_after: Flow, elsewhere: str):
    told = command("db", "export", flow_after.study().id)
    taken = command("db", "import", "-", "--storage", elsewhere, input=told.stdout)
    assert (taken.returncode, taken.stderr) == (0, "")
    assert "1 study" in taken.stdout


def test_a_pipe_is_read_as_a_file(flow_after: Flow, db: Call, tmp_path: Path, elsewhere: str):
    """As the shell's <(...) is one."""
    db("export", "--out", str(tmp_path / "all.jsonl"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = (tmp_path / "all.jsonl").read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True)
    writer.start()
    code, out, err = db("import", str(pipe), "--storage", elsewhere)
    writer.join(30)
    assert (code, err) == (0, "")
    assert "1 study" in out


def test_a_stdin_that_is_no_text_is_one_line(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # There Python takes stdin for text of another kind than the bundle's.
    monkeypatch.setenv("LC_ALL", "C")
    (tmp_path / "x").write_bytes(b"\xff\xfe\n")
    with (tmp_path / "x").open("rb") as stdin:
        told = command("db", "import", "-", stdin=stdin)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "cputune: stdin is no UTF-8 text; the file is damaged\n"


def test_a_machine_comes_from_what_probe_prints(home: Path, db: Call, tmp_path: Path):
    probed = tmp_path / "machine.json"
    probed.write_text(command("probe", "--json").stdout)
    assert db("import", str(probed))[:2] == (0, "Added: 1 machine.\n")
    with Store.open(Home(home).database) as store:
        assert len(store.machines()) == 1


def test_a_conflict_is_said_and_ends_with_1(flow_after: Flow, db: Call, tmp_path: Path, elsewhere: str):
    file = str(tmp_path / "x.jsonl")
    db("export", "--out", file)
    db("import", file, "--storage", elsewhere)
    study = flow_after.study().id
    with flow_after.store() as here, Store.open(elsewhere) as there:
        for store in (here, there):
            store.start_trial(study, Config.of("simulated", "source", {}), owner_token())
    db("export", "--out", f"{file}.2")
    code, out, _ = db("import", f"{file}.2", "--storage", elsewhere)
    assert code == 1
    assert f"study {study} not taken over: it went on in both stores" in out


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "holds no document: it is empty, names with values are expected"),
        (b"[1]", "holds no document: it is a list, names with values are expected"),
        (b"{", "x.jsonl is neither JSON nor YAML"),
        (b"\xff\xfe", "x.jsonl is no UTF-8 text"),
        (b'{"kind": "bundle", "schema_version": 2}\n', "x.jsonl:1: schema_version; got 2"),
        (b'{"kind": "bundle", "schema_version": 1}\n{"kind": "po', "x.jsonl:2 is no JSON document"),
        (b'{"schema_version": 1, "engine": "x"}', "kind; allowed: machine, model"),
        (b'{"kind": "end", "schema_version": 1, "documents": 0}', "is a part of a bundle"),
    ],
)
def test_what_is_damaged_is_refused_before_anything_is_stored(
    home: Path, db: Call, tmp_path: Path, content: bytes, expected: str
):
    (tmp_path / "x.jsonl").write_bytes(content)
    code, out, err = db("import", str(tmp_path / "x.jsonl"))
    assert (code, out) == (2, "")
    assert expected in err
    assert len(err.splitlines()) == 1
    assert not Home(home).database.exists()


def test_a_bundle_that_was_cut_off_stores_nothing(flow_after: Flow, db: Call, tmp_path: Path, elsewhere: str):
    db("export", "--out", str(tmp_path / "whole.jsonl"))
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:-1]))
    code, _, err = db("import", str(tmp_path / "cut.jsonl"), "--storage", elsewhere)
    assert code == 2
    assert "without its last line" in err
    assert not Path(elsewhere).exists()


def test_a_file_that_is_not_there(home: Path, db: Call):
    assert db("import", "/nowhere/x.jsonl")[0] == 2


def test_s02_an_import_that_is_killed_goes_on_from_there(
    flow_after: Flow, db: Call, tmp_path: Path, elsewhere: str
):
    file = tmp_path / "x.jsonl"
    db("export", "--out", str(file))
    child = FORK_SERVER.Process(target=_die_at_the_study, args=(str(file), elsewhere))
    child.start()
    child.join(60)
    assert child.exitcode == -9
    assert db("check", "--storage", elsewhere)[0] == 0
    assert db("import", str(file), "--storage", elsewhere)[0] == 0
    with Store.open(elsewhere) as other:
        assert other.study(flow_after.study().id) == flow_after.study()


def _die_at_the_study(file: str, elsewhere: str) -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from tests.support.kills import die

    def watch(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("INSERT INTO cputune_trial"):
            die()

    event.listen(Engine, "before_cursor_execute", watch)
    run(["db", "import", file, "--storage", elsewhere])
