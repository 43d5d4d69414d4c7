"""Fixtures that every test may use."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import browser as browsers
from tests.support import postgres


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own, with a measuring lock of its own."""
    folder = tmp_path / "home"
    monkeypatch.setenv("CPUTUNE_HOME", str(folder))
    monkeypatch.setenv("CPUTUNE_LOCK", str(tmp_path / "measuring.lock"))
    return folder


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Path]:
    """The socket's folder of a PostgreSQL server of this run's own."""
    with postgres.server() as folder:
        yield folder


@pytest.fixture
def postgres_url(postgres_server: Path) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of the test's own."""
    with postgres.new_database(postgres_server, f"t{uuid.uuid4().hex}") as place:
        yield place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for a module: as long as it runs, this thread has Playwright's event loop and no other."""
    with browsers.browser() as running:
        yield running
