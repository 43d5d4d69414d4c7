"""Other servers on the same file and threads, where they are installed or built."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from tests.benchmarks.peers.build import Peers, PeersError
from tests.benchmarks.serving.client import Job, ask
from tests.benchmarks.serving.rows import (
    COMPLETIONS,
    OUTPUT_TOKENS,
    Prompts,
    Row,
    at_least,
    highest_rate,
    left_out,
)
from tests.benchmarks.serving.services import Service, llama_cpp_server, llama_server
from tuner.models.gguf import read_header

RATIO, RATE = "one stream: share of its own bare loop", "requests/s at TTFT p95 <= 1 s"


def rows(
    folder: Path,
    model: Path,
    threads: dict[str, int],
    context: int,
    streams: int,
    prompts: Prompts,
    passes: int,
    *,
    own_ratio: float,
    own_rate: float,
    bare_tps: float,
) -> list[Row]:
    """Ours over each peer's: the share of the bare loop that a stream gets, the rate that is sustained."""
    found: list[Row] = []
    if find_spec("llama_cpp") and find_spec("llama_cpp.server") and find_spec("sse_starlette"):
        start = llama_cpp_server(folder, model, threads, context)
        endless = Prompts(0, {"logit_bias": {str(eos): -100.0 for eos in _ends(model)}})
        found += _compared("llama_cpp.server", start, lambda: bare_tps, endless, passes, own_ratio, own_rate)
    else:
        found.append(left_out("llama_cpp.server", "ours ahead", "pip install 'llama-cpp-python[server]'"))
    try:
        here = Peers.find()
        program, bench = here.program("llama-server"), here.program("llama-bench")
    except PeersError as error:
        found.append(left_out("llama-server", "ours ahead", error))
    else:
        start = llama_server(folder, program, model, threads, context, streams)
        own_bare = partial(bench_tps, bench, model, threads["n_threads"])
        found += _compared("llama-server", start, own_bare, prompts, passes, own_ratio, own_rate)
    return found


def _ends(model: Path) -> list[int]:
    """The token that ends an answer, where the file names one."""
    end = read_header(model).integer("tokenizer.ggml.eos_token_id")
    return [] if end is None else [end]


def _compared(
    name: str,
    start: AbstractContextManager[Service],
    bare_tps: Callable[[], float],
    prompts: Prompts,
    passes: int,
    own_ratio: float,
    own_rate: float,
) -> list[Row]:
    try:
        with start as service:
            jobs = [Job(COMPLETIONS, [prompts.body(4, 2), prompts.body()]) for _ in range(passes)]
            tps = median(ask(service.port, [job])[0][1].decode_tps for job in jobs)
            rate = highest_rate(service.port, prompts)
    except RuntimeError as error:
        return [left_out(name, "ours ahead", " ".join(str(error).split())[:150])]
    ratio = tps / bare_tps()
    return [
        at_least(f"{name}: {RATIO}, ours over its", own_ratio / ratio, 1.0, f"its is {ratio:.3f}"),
        at_least(f"{name}: {RATE}, ours over its", own_rate / rate if rate else 9.9, 1.0, f"its is {rate:g}"),
    ]


def bench_tps(program: Path, model: Path, threads: int) -> float:
    """Tokens per second of llama-bench, the bare loop of llama-server's build."""
    argv = [str(program), "-m", str(model), "-p", "0", "-n", str(OUTPUT_TOKENS), "-t", str(threads)]
    told = subprocess.run([*argv, "-o", "json"], capture_output=True, text=True, check=True).stdout
    return float(json.loads(told)[0]["avg_ts"])
