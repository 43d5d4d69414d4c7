"""Bad clients and dying workers for a minute; `make chaos` is the same on the real engine for 10 minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import sessions
from tests.support.chaos import Chaos
from tests.support.serving import serving
from tests.support.tiny import write_tiny_model
from tuner.home import Home

SECONDS = 60.0


def test_after_chaos_everything_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sessions.serve_with(monkeypatch, sessions.Slow)
    model = str(write_tiny_model(tmp_path / "tiny.gguf"))
    with serving(Home(tmp_path), engine="simulated", model=model) as served:
        chaos = Chaos(served, SECONDS)
        chaos.run()
    assert chaos.wrong == []
    assert chaos.done["worker killed"] >= 9
    assert chaos.done["_whole"] > 10
