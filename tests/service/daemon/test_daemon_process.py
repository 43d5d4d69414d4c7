"""`cputune daemon` as a process: it searches by itself, promotes, follows a rollback, ends in time."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from profiles.store import Store
from service.daemon import memory as side_file
from tests.support.commands import command
from tests.support.flow import Flow
from tests.support.serving import CHAT, events_of
from tests.support.tiny import write_tiny_model
from tests.support.waiting import wait_for
from tuner import process
from tuner.home import Home
from tuner.setup import add_model

LONG = {**CHAT, "max_tokens": 3000, "ignore_eos": True, "stream": True}
ENDS_S = 5.0
SETTINGS = """\
model: tiny
engine: simulated
tick_minutes: 0.02
idle_seconds: 0
search_minutes: 0.2
compare_minutes: 0.4
# These tests run beside others.
nice: 0
busy_share: 1
steal_share: 1
cpu_pressure_percent: 100
log_format: json
"""


class Running:
    """A daemon of its own process."""

    def __init__(self, child: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self.child = child
        self.log = log
        self.client = httpx.Client(base_url=address, timeout=20)

    def get(self, path: str) -> Any:
        response = self.client.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    def is_searching(self) -> bool:
        jobs = self.get("/v1/searches")["searches"]
        return any(job["state"] == "running" and job["command"][1] == "search" for job in jobs)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def registered(home: Path, tmp_path: Path) -> Path:
    """A data folder with one model."""
    with Store.open(Home(home).database) as store:
        add_model(store, Home(home), str(write_tiny_model(tmp_path / "tiny.gguf")), None)
    return home


@contextmanager
def daemon(
    tmp_path: Path, module: str = "tests.support.slow_daemon", *options: str, settings: str = SETTINGS
) -> Iterator[Running]:
    log, config = tmp_path / "log", tmp_path / "daemon.yaml"
    config.write_text(settings)
    with log.open("wb") as lines:
        child = subprocess.Popen(
            process.python_argv(module, *options, "--config", str(config), "--port", "0"),
            env=process.python_environment(),
            stderr=lines,
        )
    try:
        wait_for(lambda: "listening on" in log.read_text() or child.poll() is not None, 30.0)
        found = re.search(r"listening on (http://[\w.:]+)", log.read_text())
        assert found, log.read_text()
        running = Running(child, found[1], log)
        with running.client:
            wait_for(lambda: running.client.get("/readyz").status_code == 200, 30.0)
            yield running
    finally:
        child.kill()
        child.wait()


def test_g13_g14_s02_s08_a_daemon_that_searches_is_alone_and_ends_within_five_seconds(
    registered: Path, tmp_path: Path
):
    with daemon(tmp_path) as running:
        wait_for(running.is_searching, 30.0)
        second = command("daemon", "--port", "0")
        assert second.returncode == 75
        assert f"process {running.child.pid}" in second.stderr
        assert len(second.stderr.splitlines()) == 1
        wait_for(lambda: running.get("/v1/studies")["studies"])
        by_hand = command("search", "--model", "tiny", "--engines", "simulated", "--trials", "1")
        assert by_hand.returncode == 75
        assert "another process measures" in by_hand.stderr
        with running.client.stream("POST", "/v1/chat/completions", json=LONG) as response:
            events = events_of(response)
            next(events)
            started = psutil.Process(running.child.pid).children(recursive=True)
            running.child.send_signal(signal.SIGTERM)
            began = time.monotonic()
            *_pieces, error, done = events
            assert (error["error"]["type"], done) == ("unavailable_error", "[DONE]")
        code = running.child.wait(timeout=ENDS_S + 5)
        assert time.monotonic() - began < ENDS_S
        assert code == 0, running.log.read_text()
    assert [one for one in started if one.is_running() and one.status() != "zombie"] == []
    with Store.open(Home(registered).database) as store:
        assert [str(study.status) for study in store.studies()] == ["interrupted"]
    # Being ended is no failure, after which the next start would wait.
    assert side_file.load(Home(registered).root / "daemon.json")[0].failed == {}


def test_a_daemon_promotes_what_is_faster_side_by_side_and_follows_a_rollback(
    registered: Path, tmp_path: Path
):
    settings = SETTINGS + "watch: false\n"
    with daemon(tmp_path, "tuner.cli.main", "daemon", settings=settings) as running:
        flow = Flow(Home(registered), tmp_path / "tiny.gguf")
        published = flow.search(trials=4)["best"]["profile_id"]
        assert running.get("/v1/daemon")["last"]["reason"] == "watching is switched off"
        assert running.get("/v1/generator")["profile"] is None
        # The file is read again while it runs.
        (tmp_path / "daemon.yaml").write_text(SETTINGS)
        wait_for(lambda: running.get("/v1/daemon")["running"] == published, 90.0)
        assert running.get("/v1/generator")["profile"] == published
        (promotion,) = json.loads(command("history", "--json").stdout)["promotions"]
        assert (promotion["action"], promotion["other"]) == ("promoted", None)
        assert promotion["numbers"]["low"] > 1.02
        assert promotion["numbers"]["pairs"] >= 7
        assert f"is {promotion['numbers']['ratio']:.3f}x" in promotion["reason"]
        assert "compare" in {record.get("action") for record in running.logged()}
        rolled = command("rollback", "--reason", "a test", "--json")
        assert rolled.returncode == 0, rolled.stderr
        assert json.loads(rolled.stdout)["promotion"]["other"] == published
        wait_for(lambda: running.get("/v1/generator")["profile"] is None, 20.0)
        assert running.get("/v1/daemon")["running"] is None
        assert command("rollback").returncode == 3
        told = " ".join(command("history").stdout.split())
        assert f"rolled back from {published} to the defaults: a test" in told


def test_d05_a_newer_programs_store_is_refused_in_one_line(registered: Path):
    with closing(sqlite3.connect(Home(registered).database)) as connection:
        connection.execute("UPDATE cputune_alembic_version SET version_num = '9999'")
        connection.commit()
    ended = command("daemon", "--port", "0")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "has schema 9999, left untouched" in line
