"""Whether a database is whole: looked at without changing it, not even its schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, text

from profiles import migrations
from profiles.errors import NotFoundError
from profiles.store.database import Database
from profiles.store.owner import is_alive
from profiles.store.schema import stored_version

State = Literal["ok", "note", "damaged"]
_REPAIR = "put a backup back, or save what can be read: sqlite3 FILE .recover"
_SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """One check: `fix` says what to do where `state` is not ok."""

    check: str
    state: State
    message: str
    fix: str = ""


def examine(database: Database) -> Iterator[Finding]:
    """The schema, the pages, the references, and what still says that it runs.

    Raises NotFoundError where no database is there, SchemaTooNewError for a newer program's, and StoreError
    for one that can't be read at all. After an older schema nothing more is looked at.
    """
    version = stored_version(database)
    if version is None:
        raise NotFoundError(f"no database of cputune at {database}", hint="cputune search makes one")
    if version != migrations.LATEST:
        yield Finding(
            "schema", "note", f"{database} has schema {version} of {migrations.LATEST}", "cputune db upgrade"
        )
        return
    yield Finding("schema", "ok", f"{database} has schema {version}, the newest")
    with database.looking() as connection:
        if database.path:
            yield _integrity(connection)
            yield _references(connection)
        else:
            yield Finding("integrity", "ok", "pages and references are kept by the server")
        yield _running(connection)


def _integrity(connection: Connection) -> Finding:
    faults = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(3)")]
    if faults == ["ok"]:
        return Finding("integrity", "ok", "every page and index is whole")
    return Finding("integrity", "damaged", "the file is damaged: " + "; ".join(faults), _REPAIR)


def _references(connection: Connection) -> Finding:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if not broken:
        return Finding("references", "ok", "every row that is referred to is there")
    listed = ", ".join(sorted({f"{row[0]} to {row[2]}" for row in broken}))
    return Finding("references", "damaged", f"{len(broken)} rows refer to none: {listed}", _REPAIR)


def _running(connection: Connection) -> Finding:
    trials = connection.execute(text("SELECT study_id, owner FROM cputune_trial WHERE status = 'running'"))
    studies = connection.execute(text("SELECT id, owner FROM cputune_study WHERE status = 'running'"))
    rows = [*trials, *studies]
    orphans = sorted({str(study) for study, owner in rows if not is_alive(owner)})
    if orphans:
        return Finding(
            "running",
            "note",
            f"{named(orphans)} ended without a word (killed?): they read as interrupted",
            "search again: it goes on from there and writes that down",
        )
    alive = sorted({str(study) for study, _ in rows})
    return Finding("running", "ok", f"{named(alive)} runs now" if alive else "nothing runs now")


def named(names: list[str]) -> str:
    """Some names, and how many more."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
