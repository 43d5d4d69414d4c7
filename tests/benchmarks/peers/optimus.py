"""llama-optimus as a peer: run as its own program within a budget, its advice read from what it prints."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from profiles.vocabulary import Config, Setting, Workload
from tests.benchmarks.peers.build import Peers, PeersError
from tests.benchmarks.peers.contestant import Contestant
from tests.benchmarks.peers.llama_bench import CALL_S
from tuner import process

REPEATS = 2
"""Runs of a trial, between its 3 and the 1 of its quick mode: with 3, a minute has hardly any trials."""
FIXED_TRIALS = 2
"""Its second stage: flash attention off and on."""
STARTUP_S = 2.5
"""What its imports take, about."""

_TRIAL = re.compile(r"Trial \d+ finished with value: ([\d.eE+-]+) and parameters: (\{.*?\})\.")
_ADVICE = re.compile(r"llama-server +--model .*--batch-size \d+.*--ubatch-size \d+.*")


def name_of(metric: str) -> str:
    """How a run under one of its metrics is called."""
    return f"llama-optimus ({metric})"


def arguments(folder: Path, model: Path, metric: str, trials: int, tokens: int) -> list[str]:
    """Its own flags; what is about a graphics card is left out, so that the time goes into what counts."""
    return [
        *("--llama-bin", str(folder), "--model", str(model), "--metric", metric),
        *("--trials", str(trials), "--repeat", str(REPEATS), "--n-tokens", str(tokens)),
        *("--ngl-max", "0", "--override-mode", "none", "--no-warmup"),
    ]


def trials_within(budget_s: float, trial_s: float) -> int:
    """Trials of its first and of its third stage that fit: it has no budget, and must end to give advice."""
    return max(1, int(((budget_s - STARTUP_S) / trial_s - FIXED_TRIALS) // 2))


def search(
    peers: Peers,
    model: Path,
    default: Config,
    workload: Workload,
    metric: str,
    budget_s: float,
    scratch: Path,
) -> Contestant:
    """Its advice after at most `budget_s`; the calibration that sizes its number of trials is not charged.

    The files that it leaves behind go to `scratch`.
    """
    name = name_of(metric)
    try:
        optimus, bench = peers.optimus, peers.program("llama-bench")
        tokens = workload.output_tokens
        trial_s = seconds_of_trial(bench, model, metric, tokens)
    except PeersError as error:
        return Contestant.skipped(name, error)
    trials = trials_within(budget_s, trial_s)
    argv = [str(optimus), *arguments(bench.parent, model, metric, trials, tokens)]
    began = time.monotonic()
    lines = list(until_advice(output_of(argv, budget_s, scratch)))
    seconds = min(time.monotonic() - began, budget_s)
    found = advice(lines)
    if found is None:
        said = next((line for line in reversed(lines) if line.strip()), "nothing").strip()
        return Contestant.skipped(name, f"no advice within {budget_s:g} s; it said last: {said}")
    settings, complete = found
    how = f"--trials {trials}, {'ended' if complete else 'cut at the budget: its best trial'}"
    return Contestant(name, default.with_settings(**settings), how, seconds)


def seconds_of_trial(bench: Path, model: Path, metric: str, tokens: int) -> float:
    """What one of its trials takes at llama-bench's own settings."""
    prompt = {"tg": 0, "pp": 2 * tokens, "mean": 2 * tokens}[metric]
    generated = 0 if metric == "pp" else tokens
    argv = [
        *(str(bench), "-m", str(model), "-o", "csv", "--no-warmup", "-ngl", "0"),
        *("-r", str(REPEATS), "-p", str(prompt), "-n", str(generated), "-t", str(os.cpu_count() or 1)),
    ]
    began = time.monotonic()
    ended = process.run(argv, deadline_s=CALL_S, environment=dict(os.environ))
    if ended.timed_out or ended.returncode:
        raise PeersError("llama-bench did not run, on which llama-optimus stands")
    return time.monotonic() - began


def output_of(argv: Sequence[str], budget_s: float, scratch: Path) -> Iterator[str]:
    """The lines that a program prints, as they come; at the budget it is ended with all that it started."""
    # Its output would wait in a buffer while it is on a pipe.
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch)}
    child = process.spawn(argv, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    timer = threading.Timer(budget_s, process.kill_group, [child], {"grace_s": 0})
    timer.start()
    try:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                yield line.decode(errors="replace")
    finally:
        timer.cancel()
        process.kill_group(child, grace_s=0)


def until_advice(lines: Iterable[str]) -> Iterator[str]:
    """The lines up to its advice; what follows are benchmarks of its winner."""
    for line in lines:
        yield line
        if _ADVICE.search(line):
            return


def advice(lines: Sequence[str]) -> tuple[Mapping[str, Setting], bool] | None:
    """The settings that it advises, and whether it ended; else those of its best trial so far.

    None where no trial ended. Without its --flash-attn llama.cpp decides by itself, which on a CPU is "on".
    """
    for line in reversed(lines):
        command = _ADVICE.search(line)
        if command:
            words = shlex.split(command.group())
            given = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("-")}
            return settings(given["-t"], given["--batch-size"], given["--ubatch-size"]), True
    best: tuple[float, Mapping[str, int]] | None = None
    for line in lines:
        trial = _TRIAL.search(line)
        if trial is None:
            continue
        value, parameters = float(trial.group(1)), ast.literal_eval(trial.group(2))
        # Its second stage names flash attention only.
        if value > 0 and "threads" in parameters and (best is None or value > best[0]):
            best = value, parameters
    if best is None:
        return None
    found = best[1]
    return settings(found["threads"], found["batch"], found["u_batch"]), False


def settings(threads: str | int, batch: str | int, ubatch: str | int) -> dict[str, Setting]:
    """Its flags as settings: one number of threads for both phases, and no batch above the other."""
    return {
        "n_threads": int(threads),
        "n_threads_batch": int(threads),
        "n_ubatch": min(int(batch), int(ubatch)),
        "flash_attn": "on",
    }
