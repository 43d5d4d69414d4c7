"""The daemon on the home page: what it runs, what it decided last, what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.daemon.daemon import Daemon
from service.daemon.decide import Action, Decision
from service.daemon.memory import Memory
from service.daemon.routes import DaemonState
from service.daemon.settings import Configuration
from service.daemon.tick import Watcher
from tests.support.serving import Served
from tuner.home import Home

WAITS = Decision(Action.WAIT, "nothing <b>has</b> changed", waits_for="requests are being answered")


@pytest.fixture
def standing(simulated: Served, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Let the service say that a daemon keeps it, which stands so."""

    def stand(memory: Memory, degraded: str | None = None) -> None:
        daemon = Daemon(Configuration(None, {"model": "tiny"}, Home(tmp_path)))
        daemon.watcher = Watcher(None, memory, daemon.configuration.current.rules)
        daemon.watcher.last = WAITS
        daemon._service = simulated.state
        simulated.state.degraded = degraded
        simulated.state.daemon = daemon.document
        DaemonState.model_validate(daemon.document())

    yield stand
    simulated.state.daemon = simulated.state.degraded = None


def test_how_the_daemon_stands_is_on_the_home_page(simulated: Served, open_page: Any, standing):
    standing(Memory(slow_sets=2))
    text = open_page(simulated).page.inner_text("section[aria-labelledby=daemon]")
    for part in ("the engine's defaults", WAITS.reason, WAITS.waits_for, "0 min", "in 2 checks in a row"):
        assert part in text


def test_what_is_wrong_with_it_is_read_out(simulated: Served, open_page: Any, standing):
    standing(Memory(), degraded="degraded: the disk is full")
    page = open_page(simulated).page
    assert page.inner_text("section[aria-labelledby=daemon] [role=alert]") == "degraded: the disk is full"
    assert "checks in a row" not in page.inner_text("main")


def test_a_service_without_a_daemon_shows_none(simulated: Served, open_page: Any):
    assert open_page(simulated).page.query_selector("section[aria-labelledby=daemon]") is None
