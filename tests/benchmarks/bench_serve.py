"""What HTTP costs: a stream over the service beside the bare session loop, by turns on one machine."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, cast

from probes.machine import probe
from profiles.store import Store
from service.generator.launching import Serving, serving_of
from service.settings import settings_from
from tests.benchmarks.commands import environment
from tuner import process
from tuner.events import ignore
from tuner.home import Home
from tuner.measurement.isolation import Deadlines, Worker

PROMPT_WORDS, OUTPUT_TOKENS = 100, 128
PASSES = 6
LEAST_RATIO = 0.95
START_S = 60.0
WORDS = ("sun", "moon", "river", "stone", "cloud", "forest", "winter", "bread", "water", "light")


def serve(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """Tokens per second and time to first token, over SSE and in the bare loop, the same settings."""
    home = Home(folder / "home")
    settings = settings_from(engine=options.engine, context_tokens=1024)
    with Store.open(home.database) as store:
        serving = serving_of(settings, store, probe(), home, ignore)
    rng = random.Random(options.seed)
    bare: list[tuple[float, float]] = []
    served: list[tuple[float, float]] = []
    with running(folder, options.engine) as port, bare_worker(serving, folder) as worker:
        for _ in range(PASSES):
            for measure, found in ((over_http, served), (in_the_loop, bare)):
                prompt = " ".join(rng.choices(WORDS, k=PROMPT_WORDS))
                found.append(measure(port, worker, prompt))
    ratio = median(tps for _ttft, tps in served) / median(tps for _ttft, tps in bare)
    tax_ms = 1000 * (median(ttft for ttft, _tps in served) - median(ttft for ttft, _tps in bare))
    return [
        {
            "what": "one stream over SSE, tokens per second over the bare loop's",
            "command": "make bench ARGS=serve",
            "ratio": ratio,
            "served_tps": median(tps for _ttft, tps in served),
            "bare_tps": median(tps for _ttft, tps in bare),
            "ttft_overhead_ms": tax_ms,
            "settings": serving.config.as_dict(),
            "limit": f"ratio >= {LEAST_RATIO:g}",
            "kept": ratio >= LEAST_RATIO,
        }
    ]


def over_http(port: int, worker: Worker, prompt: str) -> tuple[float, float]:
    """Seconds to the first text and tokens per second of a stream, read in a process of its own."""
    del worker
    body = {"prompt": prompt, "max_tokens": OUTPUT_TOKENS, "temperature": 0, "ignore_eos": True}
    argv = [
        sys.executable,
        "-m",
        "tests.benchmarks.sse_client",
        "--port",
        str(port),
        "--body",
        json.dumps(body),
    ]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    return rates(json.loads(ended.stdout))


def in_the_loop(port: int, worker: Worker, prompt: str) -> tuple[float, float]:
    """The same of the session alone."""
    del port
    tokens = worker.request("tokenize", {"text": prompt}, START_S)["tokens"]
    asked = {"prompts": [tokens], "output_tokens": OUTPUT_TOKENS, "reuse_prefix": False}
    (times_ns,) = cast("list[list[int]]", worker.request("round", asked, START_S)["token_ns"])
    return rates([at / 1e9 for at in times_ns])


def rates(seconds: list[float]) -> tuple[float, float]:
    """The first time, and how many a second came after it."""
    return seconds[0], (len(seconds) - 1) / (seconds[-1] - seconds[0])


@contextmanager
def running(folder: Path, engine: str) -> Iterator[int]:
    """A service in a process of its own; its port once it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"CPUTUNE_SERVE_ENGINE": engine, "CPUTUNE_SERVE_CONTEXT_TOKENS": "1024"}
    with (folder / "serve.log").open("wb") as log:
        child = subprocess.Popen(
            process.python_argv("tuner.cli.main", "serve", "--port", str(port)),
            env=environment(folder) | own,
            stdout=log,
            stderr=log,
        )
    try:
        ends = time.monotonic() + START_S
        while not is_ready(port):
            if child.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"the service did not start: {(folder / 'serve.log').read_text()[-500:]}")
            time.sleep(0.1)
        yield port
    finally:
        child.terminate()
        child.wait(timeout=10)


def is_ready(port: int) -> bool:
    """Whether the generator runs."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def bare_worker(serving: Serving, folder: Path) -> Iterator[Worker]:
    """The measuring worker's session, opened as the service opens its own."""
    with Worker.start(
        serving.engine,
        environment=serving.environment,
        affinity=serving.affinity,
        log_path=folder / "bare.log",
        deadline_s=START_S,
    ) as worker:
        worker.load(serving.path, serving.load_settings, Deadlines())
        configured = {
            "settings": dict(serving.run_settings),
            "context_tokens": serving.context_tokens,
            "streams": serving.streams,
        }
        worker.request("configure", configured, START_S)
        yield worker
