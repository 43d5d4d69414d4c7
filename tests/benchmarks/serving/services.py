"""Services as processes of their own: ours, and those of llama.cpp and llama-cpp-python where they are."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks.commands import environment
from tuner import process

START_S = 120.0


@dataclass(frozen=True)
class Service:
    """A running service."""

    port: int
    pid: int

    @property
    def processes(self) -> list[psutil.Process]:
        """The service and all below it."""
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]

    def cpu_s(self) -> float:
        """CPU seconds of all of them so far."""
        return sum(sum(one.cpu_times()[:2]) for one in self.processes)

    def rss_mib(self) -> float:
        """Resident memory of all of them."""
        return sum(one.memory_info().rss for one in self.processes) / 2**20


@contextmanager
def ours(folder: Path, settings: Mapping[str, object]) -> Iterator[Service]:
    """`cputune serve` with these settings (`ServeSettings`)."""
    own = {f"CPUTUNE_SERVE_{name.upper()}": str(value) for name, value in settings.items()}
    port = free_port()
    argv = process.python_argv("tuner.cli.main", "serve", "--port", str(port))
    with running(argv, environment(folder) | own, folder / "serve.log", port, "/readyz") as service:
        yield service


@contextmanager
def llama_cpp_server(
    folder: Path, model: Path, threads: Mapping[str, int], context: int
) -> Iterator[Service]:
    """`python -m llama_cpp.server`; RuntimeError where its needs are not installed.

    A request waits for the one that runs; that server's own way is to cut that one off.
    """
    port = free_port()
    argv = [
        sys.executable, "-m", "llama_cpp.server", "--model", str(model), "--port", str(port),
        "--n_ctx", str(context), "--interrupt_requests", "False",
        *(word for name, n in threads.items() for word in (f"--{name}", str(n))),
    ]  # fmt: skip
    with running(argv, environment(folder), folder / "llama_cpp.server.log", port, "/v1/models") as service:
        yield service


@contextmanager
def llama_server(
    folder: Path, program: Path, model: Path, threads: Mapping[str, int], context: int, streams: int
) -> Iterator[Service]:
    """The `llama-server` of `make peers`."""
    port = free_port()
    argv = [
        str(program), "--model", str(model), "--port", str(port), "--parallel", str(streams),
        "--ctx-size", str(context * streams), "--threads", str(threads["n_threads"]),
        "--threads-batch", str(threads["n_threads_batch"]), "--flash-attn", "off",
    ]  # fmt: skip
    with running(argv, environment(folder), folder / "llama-server.log", port, "/health") as service:
        yield service


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(
    argv: Sequence[str], variables: Mapping[str, str], log_path: Path, port: int, ready: str
) -> Iterator[Service]:
    """A program that serves, once `ready` answers; RuntimeError where it ends or stays silent."""
    with log_path.open("wb") as log:
        child = subprocess.Popen(argv, env=dict(variables), stdout=log, stderr=log)
    try:
        ends = time.monotonic() + START_S
        while not _answers(f"http://127.0.0.1:{port}{ready}"):
            if child.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"{Path(argv[0]).name} did not start: {log_path.read_text()[-500:]}")
            time.sleep(0.1)
        yield Service(port, child.pid)
    finally:
        child.terminate()
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
