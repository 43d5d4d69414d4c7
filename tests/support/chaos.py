"""Clients that behave badly while workers are killed: `python -m tests.support.chaos --seconds 600`."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.support.serving import CHAT, Served, events_of, serving
from tests.support.sessions import on_one_thread
from tests.support.waiting import wait_for
from tuner.home import Home

CLIENTS = 16
HUNG_S = 60.0
"""No request may take longer, whatever happens."""
KILL_EVERY_S = 4.0
PATH = "/v1/chat/completions"
EXPECTED = {"worker_failed", "queue_full", "engine_failed"}
"""Codes of errors that a request may meet here; one that finds no generator has the type below."""
UNAVAILABLE = "unavailable_error"
MALFORMED: Sequence[tuple[bytes, str]] = (
    (b"{", "application/json"),
    (b'{"messages": 3}', "application/json"),
    (b'{"messages": [{"role": "user", "content": "x"}], "n": 7}', "application/json"),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 2}', "application/json"),
    (b"\xff\xfe\x00", "application/json"),
    (b"[" * 20_000, "application/json"),
    (b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}', "application/json"),
    (b'{"messages": [{"role": "user", "content": "x"}]}', "text/plain"),
)
NO_HTTP: Sequence[bytes] = (
    b"GET\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
    b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -4\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 900\r\n\r\n{",
)


@dataclass
class Chaos:
    """What happened to one service, and what should not have."""

    served: Served
    seconds: float
    seed: int = 1
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Let everybody loose for so long, then see whether the service is as it was; fills `wrong`."""
        threads = [
            threading.Thread(target=self._client, args=(random.Random(self.seed * 1000 + number),))
            for number in range(CLIENTS)
        ]
        threads.append(threading.Thread(target=self._killer, args=(random.Random(self.seed),)))
        for thread in threads:
            thread.start()
        self._ended.wait(self.seconds)
        self._ended.set()
        for thread in threads:
            thread.join(HUNG_S)
            if thread.is_alive():
                self.wrong.append("a client hangs")
        self._see_after()

    def _see_after(self) -> None:
        pool = self.served.state.running()
        try:
            wait_for(lambda: pool.load == (0, 0), 10.0)
            assert self.served.text()
            text = self.served.client.get("/metrics").text
            assert "cputune_running_requests 0.0" in text
            assert "cputune_waiting_requests 0.0" in text
        except AssertionError as error:
            self.wrong.append(f"afterwards: {error}; running and waiting are {pool.load}")

    def _client(self, rng: random.Random) -> None:
        ways: list[Callable[[random.Random], None]] = [
            self._whole, self._streamed, self._streamed, self._left_early, self._left_early, self._malformed,
            self._looked, self._no_http,
        ]  # fmt: skip
        while not self._ended.is_set():
            way = rng.choice(ways)
            began = time.monotonic()
            try:
                way(rng)
            except (httpx.HTTPError, OSError) as error:
                self.wrong.append(f"{way.__name__}: {type(error).__name__} {error}")
            if time.monotonic() - began > HUNG_S:
                self.wrong.append(f"{way.__name__} took {time.monotonic() - began:.0f} s")
            self.done[way.__name__] += 1

    def _killer(self, rng: random.Random) -> None:
        while not self._ended.wait(rng.uniform(0.5, 1.5) * KILL_EVERY_S):
            pid = self.served.generator.worker_pid
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self.done["worker killed"] += 1

    def _body(self, rng: random.Random) -> dict[str, object]:
        words = " ".join(rng.choices(("sun", "rain", "snow"), k=rng.choice((3, 30, 300))))
        return {
            **CHAT,
            "messages": [{"role": "user", "content": words}],
            "max_tokens": rng.choice((1, 8, 60)),
            "temperature": rng.choice((0, 1)),
        }

    def _whole(self, rng: random.Random) -> None:
        response = self.served.client.post(PATH, json=self._body(rng), timeout=2 * HUNG_S)
        if response.status_code != 200:
            self._judge(response.json()["error"], response.status_code)

    def _streamed(self, rng: random.Random) -> None:
        body = {**self._body(rng), "stream": True}
        with self.served.client.stream("POST", PATH, json=body, timeout=2 * HUNG_S) as response:
            if response.status_code != 200:
                self._judge(json.loads(response.read())["error"], response.status_code)
                return
            events = list(events_of(response))
        if not events or events[-1] != "[DONE]":
            self.wrong.append(f"a stream ended with {events[-1:]}")
        for event in events[:-1]:
            if "error" in event:
                self._judge(event["error"], None)

    def _judge(self, error: dict[str, object], status: int | None) -> None:
        self.done[f"error {error['code'] or error['type']}"] += 1
        if error["code"] not in EXPECTED and error["type"] != UNAVAILABLE:
            self.wrong.append(f"status {status}: {error}")

    def _left_early(self, rng: random.Random) -> None:
        content = json.dumps({**self._body(rng), "stream": rng.random() < 0.7, "max_tokens": 400}).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        ).encode()
        whole = head + content
        with self._connection() as connection:
            cut = rng.choice((len(whole), len(whole), rng.randrange(len(whole))))
            connection.sendall(whole[:cut])
            if cut == len(whole) and rng.random() < 0.7:
                connection.settimeout(rng.uniform(0.0, 0.5))
                with suppress(OSError):
                    for _ in range(rng.randrange(1, 10)):
                        connection.recv(rng.randrange(1, 2000))

    def _malformed(self, rng: random.Random) -> None:
        content, kind = rng.choice(MALFORMED)
        response = self.served.client.post(
            rng.choice((PATH, "/v1/completions", "/v1/searches", "/v1/recommendations")),
            content=content,
            headers={"Content-Type": kind},
            timeout=2 * HUNG_S,
        )
        if response.status_code >= 500:
            self._judge(response.json()["error"], response.status_code)

    def _looked(self, rng: random.Random) -> None:
        path = rng.choice(("/readyz", "/metrics", "/v1/models", "/v1/profiles", "/v1/studies", "/v1/machine"))
        status = self.served.client.get(path, timeout=2 * HUNG_S).status_code
        if status != 200 and not (path == "/readyz" and status == 503):
            self.wrong.append(f"GET {path}: {status}")

    def _no_http(self, rng: random.Random) -> None:
        with self._connection() as connection:
            connection.sendall(rng.choice(NO_HTTP))
            connection.settimeout(0.1)
            with suppress(OSError):
                connection.recv(1000)

    def _connection(self) -> socket.socket:
        address = self.served.client.base_url
        return socket.create_connection((address.host, address.port or 80), timeout=10)


def main(argv: Sequence[str] | None = None) -> int:
    """Chaos on the real engine with the demo model, on one thread; 1 where anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        on_one_thread(patch)
        with serving(Home(Path(folder)), engine="llama_cpp", context_tokens=1024) as served:
            chaos = Chaos(served, asked.seconds, asked.seed)
            chaos.run()
    for what, count in sorted(chaos.done.items()):
        sys.stdout.write(f"{count:7} {what.removeprefix('_').replace('_', ' ')}\n")
    for line in chaos.wrong[:50]:
        sys.stdout.write(f"WRONG: {line}\n")
    sys.stdout.write(f"{len(chaos.wrong)} wrong in {asked.seconds:g} s\n")
    return 1 if chaos.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
