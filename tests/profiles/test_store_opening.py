"""Opening a database: made, current, old, too new, broken, locked."""

import errno
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from filelock import FileLock
from sqlalchemy import Engine, event
from store_examples import DEFAULT, MACHINE, MODEL, SPEC, in_child, start_child, wait_for

from profiles import migrations
from profiles.errors import SchemaTooNewError, StoreError
from profiles.records import UNKNOWN_ENGINE, StudyRecord
from profiles.store import Store, database, owner_token, schema
from profiles.tables import PREFIX, Table
from profiles.vocabulary import TrialStatus

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parent / "fixtures"
FIXTURE = FIXTURES / "schema_0001.sql"
LATER = f"{int(migrations.LATEST) + 1:04}"


def sql(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(statement).fetchall()
        connection.commit()
        return rows


def load(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def test_makes_folder_and_write_ahead_logging(path: Path) -> None:
    Store.open(path).close()
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]
    assert sql(path, "SELECT version_num FROM cputune_alembic_version") == [(migrations.LATEST,)]


def test_every_connection_checks_references(store: Store) -> None:
    with store._database.reading() as session:
        connection = session.connection()
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


@pytest.mark.parametrize("form", ["path", "text", "url"])
def test_path_text_and_url_name_the_same_file(path: Path, form: str) -> None:
    with Store.open(path) as first:
        place = {"path": path, "text": str(path), "url": first.url}[form]
    with Store.open(place) as again:
        assert again.path == path
        assert again.url == f"sqlite:///{path}"


def test_odd_characters_in_the_path_are_just_characters(tmp_path: Path) -> None:
    path = tmp_path / "50% of ?#{x} ü" / "cputune.sqlite3"
    Store.open(path).close()
    assert path.exists()


@pytest.mark.parametrize(
    ("place", "cause"),
    [
        ("sqlite://", "give the path of a file"),
        ("sqlite:///:memory:", "give the path of a file"),
        ("nodb://host/x", "nodb"),
        ("mssql+pyodbc://user:secret@host/x", "mssql is not supported; give a path"),
        ("://", "give a path"),
    ],
)
def test_refuses_what_keeps_nothing(place: str, cause: str) -> None:
    with pytest.raises(StoreError, match=f"can't use this storage URL.*{cause}") as caught:
        Store.open(place)
    assert "secret" not in str(caught.value)


def test_postgres_without_its_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"psycopg.*; pip install 'cputune\[postgres\]', or give a path"):
        Store.open("postgresql://user:secret@host/x")


def test_latest_is_the_head_of_the_revisions_and_each_has_a_fixture() -> None:
    scripts = ScriptDirectory(str(schema.SCRIPTS))
    assert scripts.get_current_head() == migrations.LATEST
    revisions = {script.revision for script in scripts.walk_revisions()}
    assert {file.stem.removeprefix("schema_") for file in FIXTURES.iterdir()} == revisions


def test_migrations_make_exactly_the_models(store: Store) -> None:
    with store._database.reading() as session:
        context = MigrationContext.configure(
            session.connection(),
            opts={
                "version_table": migrations.VERSION_TABLE,
                "include_name": lambda name, kind, _: kind != "table" or name.startswith(PREFIX),
                "compare_type": True,
                "compare_server_default": True,
            },
        )
        assert compare_metadata(context, Table.metadata) == []


def test_opening_a_current_database_loads_no_alembic(path: Path) -> None:
    Store.open(path).close()
    code = (
        "import sys; from profiles.store import Store; Store.open(sys.argv[1]).models(); "
        "print(sorted(sys.modules.keys() & {'alembic', 'filelock', 'optuna', 'numpy'}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout == "[]\n"


@pytest.mark.parametrize("fixture", sorted(FIXTURES.iterdir()), ids=lambda file: file.stem)
def test_d05_every_released_schema_opens_and_keeps_its_rows(path: Path, fixture: Path) -> None:
    load(path, fixture.read_text())
    with Store.open(path) as store:
        study = store.study("chat-tiny")
        assert [trial.status for trial in store.trials(study.id)] == [TrialStatus.COMPLETE, TrialStatus.CRASH]
        (profile,) = store.profiles()
        assert profile.study_id == study.id
        assert len(store.rounds(store.trials(study.id)[0].measurement_key or "")) == 2
        assert store.model("tiny").info == MODEL
        assert len(store.pairs(store.comparisons(study.id)[0].id)) == 1
        assert sql(path, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize("older", ["0001", "0002"])
def test_a_variant_of_an_older_schema_belongs_to_the_engine_that_it_was_measured_on(
    path: Path, older: str
) -> None:
    """One that was never measured belongs to none that is known."""
    load(path, (FIXTURES / f"schema_{older}.sql").read_text())
    other = "model_digest, 'int8', 'ee', tensor_mix, bits_per_weight, file_bytes, recipe, created_at"
    sql(path, f"INSERT INTO cputune_variant SELECT 2, {other} FROM cputune_variant")
    with Store.open(path) as store:
        found = {variant.label: variant.engine for variant in store.variants(MODEL.digest)}
    assert found == {"q8_0": "simulated", "int8": UNKNOWN_ENGINE}


@pytest.fixture
def next_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of a later version, which has one more revision."""
    scripts = tmp_path / "scripts"
    shutil.copytree(schema.SCRIPTS, scripts)
    (scripts / "versions" / f"r{LATER}_later.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n\n"
        f"revision = '{LATER}'\ndown_revision = '{migrations.LATEST}'\n\n\n"
        "def upgrade():\n    with op.batch_alter_table('cputune_trial') as table:\n"
        "        table.add_column(sa.Column('colour', sa.String(), nullable=True))\n"
        "    poison = sa.text(\"SELECT 1 FROM cputune_machine WHERE label = 'poison'\")\n"
        "    if op.get_bind().execute(poison).first():\n"
        "        raise sa.exc.OperationalError('half way', None, Exception('half way'))\n"
    )
    monkeypatch.setattr(schema, "SCRIPTS", scripts)
    monkeypatch.setattr(migrations, "LATEST", LATER)


@pytest.mark.usefixtures("next_schema")
def test_d05_older_schema_is_backed_up_and_upgraded(path: Path) -> None:
    load(path, FIXTURE.read_text())
    Store.open(path).close()
    assert sql(path, "SELECT version_num FROM cputune_alembic_version") == [(LATER,)]
    assert sql(path, "SELECT colour FROM cputune_trial") == [(None,), (None,)]
    (backup,) = path.parent.glob("*.backup")
    assert backup.name.startswith("cputune.sqlite3.0001.")
    assert sql(backup, "SELECT version_num FROM cputune_alembic_version") == [("0001",)]
    assert sql(backup, "SELECT count(*) FROM cputune_trial") == [(2,)]
    Store.open(path).close()
    assert len(list(path.parent.glob("*.backup"))) == 1


@pytest.mark.usefixtures("next_schema")
def test_d05_upgrade_that_fails_leaves_the_old_schema(path: Path) -> None:
    load(path, FIXTURE.read_text())
    sql(path, "UPDATE cputune_machine SET label = 'poison'")
    with pytest.raises(StoreError, match="half way"):
        Store.open(path)
    assert sql(path, "SELECT version_num FROM cputune_alembic_version") == [("0001",)]
    assert "colour" not in str(sql(path, "SELECT sql FROM sqlite_master"))


def test_d05_newer_schema_is_refused_untouched(store: Store, path: Path) -> None:
    store.close()
    # A writer that died leaves a log: recovering it would change the file.
    assert in_child(lambda: _leave_a_log(path, "9999")) == 1
    log = path.with_name(path.name + "-wal")
    before = path.read_bytes(), log.read_bytes()
    assert before[1]
    with pytest.raises(SchemaTooNewError, match=f"schema 9999, left untouched.*up to {migrations.LATEST}"):
        Store.open(path)
    assert (path.read_bytes(), log.read_bytes()) == before
    assert not list(path.parent.glob("*.backup"))


def _leave_a_log(path: Path, version: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE cputune_alembic_version SET version_num = ?", (version,))
    connection.commit()
    raise SystemExit


@pytest.mark.parametrize("ours_first", [True, False])
def test_optuna_lives_beside_us_in_the_same_file(path: Path, ours_first: bool) -> None:
    import optuna

    if ours_first:
        Store.open(path).close()
    else:
        path.parent.mkdir()
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    optuna.create_study(storage=storage, study_name="theirs")
    with Store.open(path) as store:
        assert store.studies() == ()
    assert optuna.get_all_study_names(storage) == ["theirs"]
    assert not list(path.parent.glob("*.backup"))
    storage.engine.dispose()


def test_d05_a_database_whose_log_lost_its_index_still_opens(store: Store, path: Path) -> None:
    store.close()
    assert in_child(lambda: _leave_a_log(path, migrations.LATEST)) == 1
    path.with_name(path.name + "-shm").unlink()
    with Store.open(path) as again:
        assert len(again.models()) == 1


def test_d02_eight_processes_create_the_schema_at_once(path: Path) -> None:
    def command() -> None:
        with Store.open(path) as store:
            store.save_machine(MACHINE, "host")
            store.save_model(MODEL, "package:tiny", "tiny")
            store.open_study(SPEC, owner_token())

    children = [start_child(command) for _ in range(8)]
    assert [wait_for(child) for child in children] == [0] * 8
    with Store.open(path) as store:
        assert len(store.studies()) == 1
    assert not list(path.parent.glob("*.backup"))


def test_d02_tables_are_made_under_a_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_SCHEMA_LOCK_TIMEOUT_S", 0.01)
    path.parent.mkdir()
    with FileLock(f"{path}.lock"), pytest.raises(StoreError, match=f"waited 0.01 s for {path}.lock"):
        Store.open(path)
    with Store.open(path) as store, store.schema_lock():
        Store.open(path).close()


def test_d01_reads_go_on_and_a_write_waits_while_another_writes(store: Store, study: StudyRecord) -> None:
    trial = store.start_trial(study.id, DEFAULT, owner_token())
    results: list[TrialStatus] = []

    def finish() -> None:
        results.append(store.finish_trial(trial.id, TrialStatus.COMPLETE, objective_value=1.0).status)

    writer = threading.Thread(target=finish)
    with closing(sqlite3.connect(str(store.path), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writer.start()
        with Store.open(str(store.path)) as reader:
            assert reader.trials(study.id)[0].status is TrialStatus.RUNNING
        assert results == []
        other.execute("COMMIT")
    writer.join(timeout=30)
    assert results == [TrialStatus.COMPLETE]


def test_d01_a_lock_that_outlasts_the_wait_is_said_plainly(path: Path, store: Store) -> None:
    with (
        Store.open(path, busy_timeout_s=0.01) as hasty,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"locked; another process is writing"):
            hasty.save_machine(MACHINE, "x")


def test_d04_many_threads_read_and_write_one_store(store: Store, study: StudyRecord) -> None:
    failures: list[BaseException] = []

    def use(index: int) -> None:
        try:
            if index % 5 == 0:
                trial = store.start_trial(study.id, DEFAULT, owner_token())
                store.finish_trial(trial.id, TrialStatus.COMPLETE, objective_value=1.0)
            store.trials(study.id)
            store.studies()
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(index,)) for index in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert [trial.number for trial in store.trials(study.id)] == [0, 1, 2, 3]


def test_d06_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError, match=r"can't write .*home/x\.sqlite3 as user id \d+: .*CPUTUNE_HOME"):
        Store.open(tmp_path / "home" / "x.sqlite3")


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOSPC, errno.EROFS])
def test_d06_a_folder_that_takes_no_file(path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(**_: object) -> None:
        raise OSError(code, errno.errorcode[code])

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(StoreError, match=f"{path} as user id .*{errno.errorcode[code]}"):
        Store.open(path)
    assert not path.exists()


def test_d06_a_removed_file_is_said_and_not_made_anew(store: Store, path: Path, study: StudyRecord) -> None:
    for file in path.parent.glob("cputune.sqlite3*"):
        file.unlink()
    with pytest.raises(StoreError, match=f"{path}.*the file was removed"):
        store.start_trial(study.id, DEFAULT, owner_token())
    assert not path.exists()


def test_d06_a_full_disk_loses_nothing_stored_before(store: Store, study: StudyRecord) -> None:
    trial = store.start_trial(study.id, DEFAULT, owner_token())

    def shrink(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")

    event.listen(Engine, "connect", shrink)
    try:
        with pytest.raises(StoreError, match="full; free some space; what was stored before is safe"):
            store.finish_trial(trial.id, TrialStatus.COMPLETE, facts={"log": "x" * 100_000})
    finally:
        event.remove(Engine, "connect", shrink)
    assert store.trial(trial.id) == trial


def test_d06_another_kind_of_file(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("Dear diary, " * 100)
    with pytest.raises(StoreError, match="not a database; this file is something else"):
        Store.open(path)
    assert path.read_text().startswith("Dear diary")


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with Store.open(path) as store:
        assert store.models() == ()


def test_a_backup_is_a_whole_database_and_never_overwrites(store: Store, tmp_path: Path) -> None:
    copy = store.backup(tmp_path / "copy.sqlite3")
    with Store.open(copy) as other:
        assert other.models() == store.models()
    with pytest.raises(StoreError, match="can't back up"):
        store.backup(copy)
