"""The same store on PostgreSQL: the promises that rest on the kind of database."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text
from store_examples import (
    DEFAULT,
    FAST,
    MACHINE,
    MEASUREMENT,
    MODEL,
    PROFILE,
    ROUND,
    SPEC,
    in_child,
    start_child,
    wait_for,
)

from profiles import migrations
from profiles.bundle import read_lines
from profiles.errors import SchemaTooNewError, StoreError
from profiles.records import StudyStatus
from profiles.store import Store, database, owner_token
from profiles.tables import PREFIX, Table
from profiles.vocabulary import TrialStatus


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    """A store on PostgreSQL that knows the machine and the model."""
    with Store.open(postgres_url) as store:
        store.save_machine(MACHINE, "host")
        store.save_model(MODEL, "package:tiny", "tiny")
        yield store


def test_a_search_in_miniature(store: Store, postgres_url: str) -> None:
    study = store.open_study(SPEC, owner_token())
    trial = store.start_trial(study.id, FAST, owner_token())
    store.finish_trial(
        trial.id, TrialStatus.COMPLETE, objective_value=1.0, measurement=MEASUREMENT, rounds=[ROUND] * 2
    )
    comparison = store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
    store.add_pair(comparison.id, [1.0], [2.0])
    published = store.publish(replace(PROFILE, study_id=study.id, trial_ids=(trial.id,)))
    store.finish_study(study.id, StudyStatus.CONFIRMED, {"x": 1})
    with Store.open(postgres_url) as again:
        assert again.path is None
        assert again.study(study.id).result == {"x": 1}
        assert again.rounds(MEASUREMENT.key) == (ROUND,) * 2
        best = again.best_profile(
            SPEC.fingerprint, SPEC.model_digest, SPEC.workload, SPEC.objectives, "near-lossless", SPEC.limits
        )
        assert best == published
        assert again.trial_counts([study.id]) == {study.id: {TrialStatus.COMPLETE: 1}}


def test_migrations_make_exactly_the_models(store: Store) -> None:
    with store._database.reading() as session:
        context = MigrationContext.configure(
            session.connection(),
            opts={
                "version_table": migrations.VERSION_TABLE,
                "include_name": lambda name, kind, _: kind != "table" or name.startswith(PREFIX),
                "compare_type": True,
            },
        )
        assert compare_metadata(context, Table.metadata) == []


def test_it_moves_to_sqlite_and_back(store: Store, tmp_path: Path) -> None:
    study = store.open_study(SPEC, owner_token())
    trial = store.start_trial(study.id, FAST, owner_token())
    store.finish_trial(trial.id, TrialStatus.COMPLETE, measurement=MEASUREMENT, rounds=[ROUND])
    lines = [json.dumps(document) for document in store.bundle()]
    with Store.open(tmp_path / "x.sqlite3") as file:
        for place, document in read_lines(lines, "f"):
            file.take_in(document, place)
            assert {taken.outcome for taken in store.take_in(document, place)} == {"known"}
        assert [json.dumps(document) for document in file.bundle()] == lines


def test_d02_processes_create_the_schema_at_once(postgres_url: str) -> None:
    def command() -> None:
        with Store.open(postgres_url) as store:
            store.save_machine(MACHINE, "host")
            store.save_model(MODEL, "package:tiny", "tiny")
            store.open_study(SPEC, owner_token())

    assert [wait_for(child) for child in [start_child(command) for _ in range(8)]] == [0] * 8
    with Store.open(postgres_url) as store:
        assert len(store.studies()) == 1


def test_d02_the_schema_lock_keeps_others_out(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_SCHEMA_LOCK_TIMEOUT_S", 0.05)
    with (
        Store.open(postgres_url) as store,
        store.schema_lock(),
        Store.open(postgres_url) as other,
        pytest.raises(StoreError, match="lock timeout; another process is writing"),
        other.schema_lock(),
    ):
        pass
    with Store.open(postgres_url) as store, store.schema_lock():
        pass


def test_d01_a_write_waits_for_another_and_reads_do_not(store: Store, postgres_url: str) -> None:
    study = store.open_study(SPEC, owner_token())
    trial = store.start_trial(study.id, DEFAULT, owner_token())
    ended: list[TrialStatus] = []
    writer = threading.Thread(
        target=lambda: ended.append(store.finish_trial(trial.id, TrialStatus.COMPLETE).status)
    )
    with store._database.writing() as session, Store.open(postgres_url, busy_timeout_s=0.05) as hasty:
        session.connection()
        writer.start()
        assert hasty.trials(study.id)[0].status is TrialStatus.RUNNING
        with pytest.raises(StoreError, match="lock timeout; another process is writing"):
            hasty.save_machine(MACHINE, "x")
        assert ended == []
    writer.join(timeout=30)
    assert ended == [TrialStatus.COMPLETE]


def test_d04_many_threads_read_and_write(store: Store) -> None:
    study = store.open_study(SPEC, owner_token())
    failures: list[StoreError] = []

    def use() -> None:
        try:
            trial = store.start_trial(study.id, DEFAULT, owner_token())
            store.finish_trial(trial.id, TrialStatus.COMPLETE)
            store.trials(study.id)
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert [trial.number for trial in store.trials(study.id)] == list(range(12))


def test_s02_a_killed_writer_leaves_nothing_half(store: Store, postgres_url: str) -> None:
    study = store.open_study(SPEC, owner_token())
    store.close()

    def work() -> None:
        with Store.open(postgres_url) as own:
            own.start_trial(study.id, FAST, owner_token())
            with own._database.writing() as session:
                session.connection().execute(text("DELETE FROM cputune_trial"))
                raise SystemExit

    assert in_child(work) == 1
    with Store.open(postgres_url) as again:
        assert [trial.status for trial in again.trials(study.id)] == [TrialStatus.INTERRUPTED]
        again.start_trial(study.id, DEFAULT, owner_token())


def test_d05_a_newer_schema_is_refused_untouched(postgres_url: str) -> None:
    Store.open(postgres_url).close()
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE cputune_alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNewError, match="has schema 9999, left untouched"):
        Store.open(postgres_url)


def test_d06_what_is_wrong_with_the_server_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is the server running|No such file") as caught:
        Store.open(f"postgresql://owner:secret@/x?host={tmp_path}")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_database_that_is_not_there(postgres_server: Path) -> None:
    with pytest.raises(StoreError, match="does not exist; make the database first: createdb"):
        Store.open(f"postgresql://owner@/nothing?host={postgres_server}")


def test_a_backup_is_the_servers_own_work(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="use pg_dump"):
        store.backup(tmp_path / "x")
