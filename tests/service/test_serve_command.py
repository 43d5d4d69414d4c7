"""`cputune serve` as a process: it ends in time, with everything that it started, and there is one of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from profiles.store import Store
from tests.support.serving import CHAT, events_of
from tests.support.tiny import write_tiny_model
from tests.support.waiting import wait_for
from tuner import process
from tuner.home import Home
from tuner.setup import add_model

LONG = {**CHAT, "max_tokens": 3000, "ignore_eos": True, "stream": True}
ENDS_S = 5.0
SLOW = ("tests.support.slow_service",)


@contextmanager
def service(
    log: Path, *options: str, program: Sequence[str] = SLOW, answers: str = "/readyz"
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A service of its own process, and its address once it answers; killed at the end if it still runs."""
    with log.open("wb") as lines:
        child = subprocess.Popen(
            process.python_argv(*program, "--port", "0", *options),
            env=process.python_environment() | {"CPUTUNE_SERVE_ENGINE": "simulated"},
            stderr=lines,
        )
    try:
        wait_for(lambda: "listening on" in log.read_text() or child.poll() is not None, 30.0)
        found = re.search(r"listening on (\S+)", log.read_text())
        assert found, log.read_text()
        wait_for(lambda: httpx.get(f"{found[1]}{answers}").status_code in (200, 401), 30.0)
        yield child, found[1]
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def registered(home: Path, tmp_path: Path) -> Path:
    """A data folder with one model."""
    model = write_tiny_model(tmp_path / "tiny.gguf")
    with Store.open(Home(home).database) as store:
        add_model(store, Home(home), str(model), None)
    return home


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_g13_a_signal_ends_a_stream_and_a_search_within_five_seconds(
    registered: Path, tmp_path: Path, number: signal.Signals
):
    asked = {"model": "tiny", "engines": ["simulated"], "budget": "60s"}
    with service(tmp_path / "log") as (child, address):
        httpx.post(f"{address}/v1/searches", json=asked).raise_for_status()
        wait_for(lambda: httpx.get(f"{address}/v1/studies").json()["studies"])
        with httpx.stream("POST", f"{address}/v1/chat/completions", json=LONG, timeout=20) as response:
            events = events_of(response)
            next(events)
            started = psutil.Process(child.pid).children(recursive=True)
            assert len(started) >= 2
            child.send_signal(number)
            began = time.monotonic()
            *_pieces, error, done = events
            assert (error["error"]["type"], done) == ("unavailable_error", "[DONE]")
        code = child.wait(timeout=ENDS_S + 5)
        assert time.monotonic() - began < ENDS_S
        assert code == 0, (tmp_path / "log").read_text()
    assert [one for one in started if one.is_running() and one.status() != "zombie"] == []
    with Store.open(Home(registered).database) as store:
        assert [str(study.status) for study in store.studies()] == ["interrupted"]


def test_g13_a_signal_ends_it_also_while_an_engine_is_looked_at(
    registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A thread waits for a child then, as it does while a variant is made."""
    monkeypatch.setenv("CPUTUNE_SIMULATED_FAULTS", '{"*": "hang_on_import"}')
    ours = ("tuner.cli.main", "serve")
    with service(tmp_path / "log", program=ours, answers="/healthz") as (child, _address):
        wait_for(lambda: psutil.Process(child.pid).children())
        started = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=ENDS_S) == 0, (tmp_path / "log").read_text()
    assert [one for one in started if one.is_running() and one.status() != "zombie"] == []


def test_g14_there_is_one_service_with_a_generator_for_a_data_folder(registered: Path, tmp_path: Path):
    with service(tmp_path / "log") as (child, _address):
        argv = process.python_argv("tuner.cli.main", "serve", "--port", "0")
        second = process.run(argv, deadline_s=30.0)
        assert second.returncode == 75
        assert str(child.pid) in second.log_tail
        assert len(second.log_tail.splitlines()) == 1
    several = process.run(process.python_argv("tuner.cli.main", "serve", "--workers", "2"), deadline_s=30.0)
    assert several.returncode == 2


def test_a_port_that_is_taken_is_one_line(registered: Path, tmp_path: Path):
    with service(tmp_path / "log", "--no-generator") as (_child, address):
        port = address.rpartition(":")[2]
        argv = process.python_argv("tuner.cli.main", "serve", "--no-generator", "--port", port)
        second = process.run(argv, deadline_s=30.0)
    assert second.returncode == 2
    (line,) = second.log_tail.splitlines()
    assert f"port {port}" in line
    assert "--port 0" in line


def test_the_log_holds_no_prompt_and_no_token(registered: Path, tmp_path: Path):
    token = "a-token-of-enough-length"
    (tmp_path / "token").write_text(token)
    with service(tmp_path / "log", "--token-file", str(tmp_path / "token")) as (_child, address):
        headers = {"Authorization": f"Bearer {token}"}
        wait_for(lambda: httpx.get(f"{address}/readyz", headers=headers).status_code == 200, 30.0)
        secret = {**CHAT, "messages": [{"role": "user", "content": "my secret"}]}
        for changes, status in (({}, 200), ({"n": 2}, 400), ({"temperature": "my secret"}, 422)):
            asked = {**secret, **changes}
            answer = httpx.post(f"{address}/v1/chat/completions", json=asked, headers=headers)
            assert answer.status_code == status, answer.text
        assert httpx.get(f"{address}/v1/machine?token={token}").status_code == 401
    told = (tmp_path / "log").read_text() + json.dumps(
        [path.read_text(errors="replace") for path in registered.rglob("*.log")]
    )
    assert token not in told
    assert "my secret" not in told
