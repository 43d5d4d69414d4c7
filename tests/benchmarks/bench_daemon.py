"""What the daemon's own search costs the users of its generator: streams beside one and without, by turns."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.commands import environment
from tests.benchmarks.serving.client import Job, ask
from tests.benchmarks.serving.rows import Prompts
from tests.benchmarks.serving.services import Service, free_port, running
from tuner import process

TOKENS = 128
MOST_RATIO = 1.2
WAIT_S = 180.0
SETTINGS = """\
engine: {engine}
context_tokens: 1024
watch: {watch}
tick_minutes: 0.02
retry_minutes: 0.001
idle_seconds: 0
search_minutes: 30
daily_minutes: 600
busy_share: 1
steal_share: 1
cpu_pressure_percent: 100
"""


def daemon(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """The p95 of the gaps between tokens beside a background search over that without."""
    config = folder / "daemon.yaml"
    prompts = Prompts(options.seed)
    gaps_ms: dict[bool, list[float]] = {True: [], False: []}
    ttft_ms: dict[bool, list[float]] = {True: [], False: []}
    stopped_s = 0.0
    _write(config, options.engine, watch=False)
    port = free_port()
    argv = process.python_argv("tuner.cli.main", "daemon", "--config", str(config), "--port", str(port))
    with running(argv, environment(folder), folder / "daemon.log", port, "/readyz") as service:
        for _ in range(options.passes):
            for searches in (False, True):
                _write(config, options.engine, watch=searches)
                if searches:
                    _until(lambda: any(job["events"] > 3 for job in _running(service)), "a search")
                answer = ask(service.port, [Job("/v1/completions", [prompts.body(tokens=TOKENS)])])[0][0]
                gaps_ms[searches] += [1000 * (b - a) for a, b in pairwise(answer.at_s)]
                ttft_ms[searches].append(1000 * answer.ttft_s)
                for job in _running(service):
                    stopped_s += job["stopped_s"]
                    _write(config, options.engine, watch=False)
                    _call(service, "DELETE", f"/v1/searches/{job['id']}")
                _until(lambda: not _running(service), "the end of the search")
    p95 = {searches: quantiles(values, n=20, method="inclusive")[-1] for searches, values in gaps_ms.items()}
    ratio = p95[True] / p95[False]
    return [
        {
            "what": "a stream beside a background search: p95 of gaps over that without",
            "command": "make bench ARGS=daemon",
            "ratio": ratio,
            "beside_ms": p95[True],
            "without_ms": p95[False],
            "ttft_beside_ms": median(ttft_ms[True]),
            "ttft_without_ms": median(ttft_ms[False]),
            "stopped_s": stopped_s,
            "limit": f"<= {MOST_RATIO}",
            "kept": ratio <= MOST_RATIO,
        }
    ]


def _write(config: Path, engine: str, *, watch: bool) -> None:
    """Replace the settings as a whole: the daemon reads them at its next look."""
    new = config.with_suffix(".new")
    new.write_text(SETTINGS.format(engine=engine, watch=str(watch).lower()))
    os.replace(new, config)


def _running(service: Service) -> list[dict[str, Any]]:
    jobs = _call(service, "GET", "/v1/searches")["searches"]
    return [job for job in jobs if job["state"] == "running"]


def _call(service: Service, method: str, path: str) -> dict[str, Any]:
    asked = urllib.request.Request(f"http://127.0.0.1:{service.port}{path}", method=method)
    with urllib.request.urlopen(asked, timeout=WAIT_S) as response:
        return dict(json.load(response))


def _until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > ends:
            raise RuntimeError(f"{what} did not come within {WAIT_S:g} s")
        time.sleep(0.1)
