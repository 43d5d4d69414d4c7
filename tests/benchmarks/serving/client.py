"""Requests over raw sockets in a process of their own: `python -m tests.benchmarks.serving.client < JOBS`.

Stdin is {"port": 8765, "jobs": [{"at_s": 0.0, "path": "/v1/completions", "bodies": [...]}]}: each job is one
connection, kept alive as far as the server does; it begins `at_s` seconds after the start and sends its
bodies one after another, or one GET where it has none. Stdout is, for each job, a list of {"began_s", "at_s",
"error"}: when a request was sent, and when each piece of text came, in seconds since the start.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 120.0
CLOSED = "the connection was closed"


@dataclass(frozen=True)
class Answer:
    """Seconds since the start of all: when a request was sent, when its pieces came."""

    began_s: float
    at_s: tuple[float, ...]
    error: str | None

    @property
    def ttft_s(self) -> float:
        """Sent to the first piece; infinite where none came."""
        return self.at_s[0] - self.began_s if self.at_s else float("inf")

    @property
    def decode_tps(self) -> float:
        """Pieces a second after the first one."""
        return (len(self.at_s) - 1) / (self.at_s[-1] - self.at_s[0]) if len(self.at_s) > 1 else 0.0


@dataclass(frozen=True)
class Job:
    """One connection and what it asks for."""

    path: str
    bodies: Sequence[dict[str, Any]] = ()
    at_s: float = 0.0


def ask(port: int, jobs: Sequence[Job]) -> list[list[Answer]]:
    """Run the jobs in a process of their own. Raises RuntimeError where that fails or a request does."""
    asked = {"port": port, "jobs": [vars(job) for job in jobs]}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.serving.client"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [
        [Answer(one["began_s"], tuple(one["at_s"]), one["error"]) for one in answers]
        for answers in json.loads(ended.stdout)
    ]
    errors = [answer.error for answers in found for answer in answers if answer.error]
    if errors:
        raise RuntimeError(f"{len(errors)} requests failed: {errors[0]}")
    return found


def main() -> None:
    asked = json.load(sys.stdin)
    jobs = asked["jobs"]
    results: list[list[dict[str, Any]]] = [[] for _ in jobs]
    start = time.perf_counter() + 0.05
    threads = [
        threading.Thread(target=run_job, args=(asked["port"], job, start, results[number]))
        for number, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump(results, sys.stdout)


def run_job(port: int, job: dict[str, Any], start: float, results: list[dict[str, Any]]) -> None:
    time.sleep(max(0.0, start + job["at_s"] - time.perf_counter()))
    # Not before: servers close a connection on which nothing comes for some seconds.
    connection = connected(port)
    try:
        for number, body in enumerate(job["bodies"] or [None]):
            began = time.perf_counter()
            at, error = exchange(connection, job["path"], body)
            if error == CLOSED and number > 0:
                # Some servers end a connection after a streamed answer: the next request takes another one.
                connection.close()
                connection = connected(port)
                at, error = exchange(connection, job["path"], body)
            at_s = [moment - start for moment in at]
            results.append({"began_s": began - start, "at_s": at_s, "error": error})
    finally:
        connection.close()


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(
    connection: socket.socket, path: str, body: dict[str, Any] | None
) -> tuple[list[float], str | None]:
    """Send a request and read its answer; `CLOSED` where the connection was gone."""
    try:
        connection.sendall(request(path, body))
        return read(connection)
    except ConnectionError:
        return [], CLOSED


def request(path: str, body: dict[str, Any] | None) -> bytes:
    if body is None:
        return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    content = json.dumps({**body, "stream": True}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def read(connection: socket.socket) -> tuple[list[float], str | None]:
    """When each piece of text came, or the answer itself where it has a length."""
    at: list[float] = []
    head, held = b"", b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(65536)
        if not data:
            return at, CLOSED
        head += data
    now = time.perf_counter()
    head, _, held = head.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1]
    if status != b"200":
        return at, f"status {status.decode()}: {held[:200]!r}"
    fields = dict(line.lower().partition(b":")[::2] for line in head.split(b"\r\n")[1:])
    if b"content-length" in fields:
        length = int(fields[b"content-length"])
        while len(held) < length:
            held += connection.recv(65536)
        return [time.perf_counter()], None
    ended = False
    while True:
        *lines, held = held.split(b"\n")
        for line in lines:
            plain = line.replace(b" ", b"")
            # A piece of text: neither the last events nor one without text.
            if b'"finish_reason":null' in plain and b'"role"' not in plain:
                at.append(now)
            ended |= plain.startswith(b"data:[DONE]")
        if ended and (held.endswith(b"0\r\n\r\n") or any(line == b"0\r" for line in lines)):
            return at, None
        data = connection.recv(65536)
        now = time.perf_counter()
        if not data:
            return at, None if ended else "the stream was cut off"
        held += data


if __name__ == "__main__":
    main()
