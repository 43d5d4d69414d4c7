"""One database: its connections, its sessions and its failures in plain words."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlmodel import Session, create_engine

from profiles.errors import StoreError
from profiles.interrupts import held_back

BUSY_TIMEOUT_S = 30.0
_SCHEMA_LOCK_TIMEOUT_S = 120.0
_WRITER_KEY, _SCHEMA_KEY = 0x63707475, 0x63707476
"""Of the advisory locks that stand for SQLite's one writer and for the lock file, on PostgreSQL."""
_to_json = partial(json.dumps, allow_nan=False, separators=(",", ":"))


class Database:
    """Sessions on one database, with one writer at a time whatever its kind.

    A session lives in one call of one thread; on SQLite its connection does too, so none is ever used
    by two threads, and a removed file is noticed by the next call instead of being written for nothing.
    """

    def __init__(self, url: URL, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self.url = url
        self.path = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
        self._busy_timeout_s = busy_timeout_s
        self._engine = self._new_engine("rw")
        if self.path:
            self._reader = self._engine
            self._writer = self._engine.execution_options(cputune_begin="BEGIN IMMEDIATE")
        else:
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")
            self._writer = self._engine.execution_options(cputune_begin=_postgres_turn(busy_timeout_s))

    def reading(self) -> AbstractContextManager[Session]:
        """A session that sees one state of the database."""
        return self._session(self._reader)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session whose writes become one commit at its end, or none if it raises.

        Ctrl-C comes after it: an exception inside SQLAlchemy's begin would leave the write lock to a
        connection that nobody has, and the next write would wait for it.
        """
        # Taking the write lock first: a reader that turns writer can't wait for another one in SQLite.
        with held_back(), self._session(self._writer) as session:
            yield session

    @contextmanager
    def looking(self) -> Iterator[Connection]:
        """A connection that can't change the database file, not even by recovering its log."""
        engine = self._new_engine("ro") if self.path else self._engine
        with self.explained(), engine.connect() as connection:
            yield connection

    def schema_lock(self) -> AbstractContextManager[object]:
        """Held by the one process that may create or alter tables; a file beside an SQLite database."""
        return self._advisory_lock() if self.path is None else _locked(Path(f"{self.path}.lock"))

    def check_place(self) -> None:
        """Make the parent folder and write a probe there.

        Raises StoreError naming the path and the user id when folder or file can't be written.
        """
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite needs files of its own beside the database, so the folder must be writable too.
            with tempfile.TemporaryFile(dir=self.path.parent, buffering=0) as probe:
                probe.write(bytes(65536))
            if self.path.exists():
                self.path.open("r+b").close()
        except OSError as error:
            raise StoreError(
                f"can't write {self.path} as user id {os.geteuid()}: {error.strerror}",
                hint="make the folder writable for this user, free some space, or set CPUTUNE_HOME",
            ) from error

    def create_file(self) -> None:
        """Make an SQLite file, if there is none, and switch it to write-ahead logging."""
        if self.path is None:
            return
        with self.explained(), closing(self._connect("rwc")) as connection:
            connection.execute("PRAGMA journal_mode = WAL")

    def logs_ahead(self) -> bool:
        """Whether the SQLite file is switched to write-ahead logging; True for other databases."""
        if self.path is None:
            return True
        with self.path.open("rb") as file:
            return file.read(20)[18:] == b"\2\2"

    def backup(self, target: Path) -> Path:
        """Copy a live SQLite database to a new file, and return its path.

        The copy is one state of the database, whoever writes meanwhile; it gets its name when it is whole.
        Raises StoreError where it can't be made, and where the database is not SQLite.
        """
        if self.path is None:
            raise StoreError(f"can't copy {self}", hint="use pg_dump")
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        if target.exists():
            raise StoreError(f"can't back up to {target}: it is there already", hint="name another file")
        try:
            with closing(self._connect("ro")) as source, closing(sqlite3.connect(partial)) as copy:
                source.backup(copy)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, target)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"can't back up {self.path} to {target}: {error}") from error
        finally:
            with suppress(OSError):
                partial.unlink()
        return target

    def close(self) -> None:
        """Give back all connections."""
        self._engine.dispose()

    def __str__(self) -> str:
        return str(self.path or self.url)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn the database library's errors into a StoreError of one line.

        SQLite's library says OverflowError for a whole number of more than 64 bits.
        """
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OverflowError) as error:
            cause = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise StoreError(
                f"database {self} (user id {os.geteuid()}): {cause}", hint=self._hint(cause)
            ) from error

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        with self.explained(), Session(engine) as session, session.begin():
            yield session

    def _hint(self, cause: str) -> str:
        if self.path and not self.path.exists():
            return "the file was removed; run again to make a new one, or put it back"
        for part, hint in _HINTS:
            if part in cause:
                return hint
        return "see docs/store.md"

    def _new_engine(self, mode: str) -> Engine:
        if self.path is None:
            engine = create_engine(self.url, json_serializer=_to_json, pool_pre_ping=True)
        else:
            engine = create_engine(
                self.url, json_serializer=_to_json, creator=lambda: self._connect(mode), poolclass=NullPool
            )
        event.listen(engine, "begin", _begin if self.path else _take_turn)
        return engine

    @contextmanager
    def _advisory_lock(self) -> Iterator[None]:
        with self._engine.connect() as connection:
            with self.explained():
                connection.execution_options(isolation_level="AUTOCOMMIT")
                # Not given back to the pool: the lock and its timeout end with the connection.
                connection.detach()
                connection.exec_driver_sql(f"SET lock_timeout = '{_SCHEMA_LOCK_TIMEOUT_S:g}s'")
                connection.exec_driver_sql(f"SELECT pg_advisory_lock({_SCHEMA_KEY})")
            yield

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout_s,
            isolation_level=None,
        )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection


_HINTS = (
    ("locked", "another process is writing; wait for it or end it"),
    ("not a database", "this file is something else; move it away or name another one with --storage"),
    ("malformed", "the file is damaged; put a backup back or move it away"),
    ("full", "free some space; what was stored before is safe"),
    ("readonly", "make file and folder writable for this user"),
    ("unable to open", "make file and folder readable and writable for this user"),
    ("no such", "the tables are not those of this program; move the file away"),
    ("lock timeout", "another process is writing; wait for it or end it"),
    ("refused", "start the server, or mend host and port in the storage URL"),
    ("password", "mend user and password in the storage URL"),
    ("does not exist", "make the database first: createdb NAME"),
    ("too large", "whole numbers are at most 2^63 - 1"),
    ("out of range", "whole numbers are at most 2^63 - 1"),
    ("FOREIGN KEY", "store the machine, model, study or trial that this refers to first"),
)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("cputune_begin", "BEGIN"))


def _postgres_turn(busy_timeout_s: float) -> tuple[str, ...]:
    """Waits for the one writer's place, as BEGIN IMMEDIATE does; free again when the transaction ends."""
    return (
        f"SET LOCAL lock_timeout = '{max(1, round(1000 * busy_timeout_s))}ms'",
        f"SELECT pg_advisory_xact_lock({_WRITER_KEY})",
    )


def _take_turn(connection: Connection) -> None:
    for statement in connection.get_execution_options().get("cputune_begin", ()):
        connection.exec_driver_sql(statement)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=_SCHEMA_LOCK_TIMEOUT_S):
            yield
    except Timeout as error:
        raise StoreError(
            f"waited {_SCHEMA_LOCK_TIMEOUT_S:g} s for {path}", hint="another process is changing the tables"
        ) from error
