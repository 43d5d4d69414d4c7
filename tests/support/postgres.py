"""A private PostgreSQL server: no port, its files in a folder of its own, gone after the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PLACES = "/usr/lib/postgresql/*/bin"
_UNPRIVILEGED = ("postgres", "nobody")
OWNER = "owner"


def program(name: str) -> str:
    """Where a program of the server is; skips the test where it is absent, and fails it in CI."""
    found = shutil.which(name) or next(
        (str(place / name) for place in sorted(Path("/").glob(_PLACES[1:])) if (place / name).exists()), None
    )
    if found is None:
        absent = f"PostgreSQL is not installed ({name} is missing): make system-deps"
        if os.environ.get("CI"):
            pytest.fail(absent)
        pytest.skip(absent)
    return found


def unprivileged() -> str | None:
    """The user that the server runs as, which refuses root; None for this one."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)


@contextmanager
def server() -> Iterator[Path]:
    """A running server; the folder of its socket, which is the host of its URLs."""
    initdb, control = program("initdb"), program("pg_ctl")
    user = unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="cputune-pg-"))
    data = folder / "data"

    def run(*command: str) -> None:
        ended = subprocess.run(
            command, user=user, cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    try:
        if user is not None:
            shutil.chown(folder, user)
        run(initdb, "-D", str(data), "-U", OWNER, "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses= -c fsync=off -c full_page_writes=off"
        run(control, "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        # It reads until this process ends, however it ends, and stops the server then.
        watcher = subprocess.Popen(
            ("sh", "-c", 'read _; "$0" -D "$1" -w -m immediate stop; rm -rf "$1"', control, str(data)),
            user=user,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield folder
        finally:
            watcher.communicate(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def url(folder: Path, database: str) -> str:
    """The URL of a database on the server."""
    return f"postgresql://{OWNER}@/{database}?host={folder}"


@contextmanager
def new_database(folder: Path, name: str) -> Iterator[str]:
    """The URL of a new and empty database."""
    import psycopg

    place = f"host={folder} user={OWNER} dbname=postgres"
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield url(folder, name)
    finally:
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
