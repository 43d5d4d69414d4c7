"""A request to the generator wins over a measuring round: the search stands still, and so does its clock."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from service.stopping import Stopping
from tests.support import sessions
from tests.support.serving import CHAT, Served, events_of, serving
from tests.support.tiny import write_tiny_model
from tests.support.waiting import wait_for
from tuner import clock, process
from tuner.home import Home
from tuner.setup import add_model

LONG = {**CHAT, "max_tokens": 300, "ignore_eos": True, "stream": True}


def states(pid: int) -> set[str]:
    """The states of a process and of everything below it."""
    root = psutil.Process(pid)
    return {one.status() for one in (root, *root.children(recursive=True)) if one.status() != "zombie"}


FAMILY = """
import subprocess, sys, time
inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
child = subprocess.Popen([sys.executable, "-c", inner], start_new_session=True, stdin=subprocess.PIPE)
print("ready", flush=True)
child.wait()
"""


def test_a_child_stands_still_with_all_that_it_started_in_whatever_session():
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        stopping = Stopping()
        try:
            wait_for(lambda: len(psutil.Process(child.pid).children(recursive=True)) == 2)
            stopping.stop(child.pid)
            # The signal is sent, and takes effect in a moment.
            wait_for(lambda: states(child.pid) == {"stopped"})
            stopping.go_on()
            wait_for(lambda: "stopped" not in states(child.pid))
        finally:
            stopping.close()
            for one in psutil.Process(child.pid).children(recursive=True):
                one.kill()
            # A stopped one would be waited for without an end.
            child.kill()


ELAPSED = """
from tuner.clock import monotonic_s
began = monotonic_s()
print("began", flush=True)
input()
print(monotonic_s() - began, flush=True)
"""


def test_the_clock_of_a_stopped_child_stands_still_too():
    stopping = Stopping()
    began_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", ELAPSED],
        env=process.python_environment() | stopping.environment,
        pass_fds=stopping.pass_fds,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        stopping.stop(child.pid)
        threading.Event().wait(0.5)
        stopping.go_on()
        child.stdin.write(b"\n")
        child.stdin.flush()
        elapsed_s = float(child.stdout.readline())
    assert stopping.total_s >= 0.5
    assert elapsed_s < time.monotonic() - began_s - stopping.total_s
    stopping.close()


def test_without_a_service_nothing_is_taken_off_the_clock():
    assert clock.stopped_s() == 0.0
    assert abs(clock.monotonic_s() - time.monotonic()) < 1.0


@pytest.fixture
def busy(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service whose generator takes its time, with a model for the simulated engine."""
    monkeypatch.setattr("service.jobs.QUIET_S", 0.05)
    sessions.serve_with(monkeypatch, sessions.Slow)
    model = write_tiny_model(tmp_path / "tiny.gguf")
    with serving(Home(home), engine="simulated", model=str(model)) as served:
        add_model(served.state.store, served.state.home, str(model), None)
        yield served


def test_s08_a_search_stands_still_while_a_request_is_answered_and_loses_no_time(busy: Served):
    asked = {"model": "tiny", "engines": ["simulated"], "budget": "10s"}
    began = time.monotonic()
    path = f"/v1/searches/{busy.client.post('/v1/searches', json=asked).json()['id']}"
    with busy.client.stream("GET", f"{path}/events") as response:
        for event in events_of(response):
            if event["event"] == "trial":
                break
    with busy.client.stream("POST", "/v1/chat/completions", json=LONG) as response:
        answered = events_of(response)
        next(answered)
        assert busy.client.get(path).json()["is_stopped"]
        assert busy.state.jobs.pid is not None
        pid = busy.state.jobs.pid
        wait_for(lambda: states(pid) == {"stopped"})
        list(answered)
    wait_for(lambda: not busy.client.get(path).json()["is_stopped"])
    with busy.client.stream("GET", f"{path}/events") as response:
        events = list(events_of(response))
    elapsed_s = time.monotonic() - began
    done = busy.client.get(path).json()
    assert done["state"] == "done", done["error"]
    names = [event["event"] for event in events]
    assert names.index("stopped") < names.index("continued")
    assert done["stopped_s"] > 2
    assert done["result"]["elapsed_s"] <= elapsed_s - done["stopped_s"] + 0.5


def test_a_search_that_is_stopped_can_be_cancelled(busy: Served):
    asked = {"model": "tiny", "engines": ["simulated"], "budget": "60s"}
    with busy.client.stream("POST", "/v1/chat/completions", json=LONG) as response:
        answered = events_of(response)
        next(answered)
        path = f"/v1/searches/{busy.client.post('/v1/searches', json=asked).json()['id']}"
        assert busy.client.get(path).json()["is_stopped"]
        assert busy.client.delete(path).json()["state"] == "cancelled"
    assert busy.state.jobs.running is None
