"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own, with a measuring lock of its own."""
    folder = tmp_path / "home"
    monkeypatch.setenv("CPUTUNE_HOME", str(folder))
    monkeypatch.setenv("CPUTUNE_LOCK", str(tmp_path / "measuring.lock"))
    return folder
