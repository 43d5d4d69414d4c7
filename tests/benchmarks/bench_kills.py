"""kill -9 of a search at random moments, and whether the next one goes on without loss."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import time
from argparse import Namespace
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from profiles.store import Store
from profiles.vocabulary import TrialStatus
from tests.benchmarks.commands import cputune, environment
from tuner import process
from tuner.models.source import DEMO

LONGEST_S = 12.0
DEATH_S = 5.0
_OPEN = (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)
Finished = dict[int, tuple[object, ...]]


def random_kills(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """Kill a search again and again, let the last one end, and check the store after each."""
    rng = random.Random(options.seed)
    cputune(folder, "models", "prepare", DEMO, "--engines", options.engine, "--json")
    arguments = ("search", "--engines", options.engine, "--budget", f"{options.budget}s", "--json")
    faults: list[str] = []
    finished: Finished = {}
    killed = 0
    for number in range(options.kills):
        after_s = rng.uniform(0.3, min(LONGEST_S, options.budget))
        killed += _killed(folder, arguments, after_s, faults)
        finished = _checked(folder, finished, f"kill {number + 1}", faults)
    last = cputune(folder, *arguments)
    if last.code != 0:
        faults.append(f"the last search ended with {last.code}: {last.stderr.strip()[-200:]}")
    _checked(folder, finished, "the end", faults)
    return [
        {
            "what": "kills at random moments",
            "command": last.command,
            "kills": killed,
            "finished_trials": len(finished),
            "faults": faults or "none",
            "limit": "no faults",
            "kept": not faults,
        }
    ]


def _killed(folder: Path, arguments: tuple[str, ...], after_s: float, faults: list[str]) -> bool:
    """Start a search, kill it after a while; False where it had ended by itself before."""
    search = subprocess.Popen(
        process.python_argv("tuner.cli.main", *arguments),
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        search.wait(after_s)
        return False
    except subprocess.TimeoutExpired:
        children = children_of(search.pid)
        search.kill()
        search.wait()
    until = time.monotonic() + DEATH_S
    left = children
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = [pid for pid in left if process.alive(pid)]
    for pid in left:
        faults.append(f"process {pid} outlived its parent, killed after {after_s:.1f} s")
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return True


def children_of(pid: int) -> list[int]:
    """The processes that a process started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def _checked(folder: Path, before: Finished, when: str, faults: list[str]) -> Finished:
    database = folder / "home" / "cputune.sqlite3"
    if not database.exists():
        return {}
    with closing(sqlite3.connect(database)) as connection:
        answer = connection.execute("PRAGMA integrity_check").fetchall()
        if answer != [("ok",)]:
            faults.append(f"{when}: integrity_check says {answer}")
    with Store.open(database) as store:
        trials = [trial for study in store.studies() for trial in store.trials(study.id)]
        now: Finished = {
            trial.id: (trial.number, trial.config.key, trial.objective_value, store.trial_rounds(trial.id))
            for trial in trials
            if trial.status not in _OPEN
        }
    if any(trial.status is TrialStatus.RUNNING for trial in trials):
        faults.append(f"{when}: a trial is still running")
    lost = [number for number, values in before.items() if now.get(number) != values]
    if lost:
        faults.append(f"{when}: finished trials {lost} were lost or changed")
    keys = [values[1] for values in now.values()]
    if len(keys) != len(set(keys)):
        faults.append(f"{when}: a finished configuration was measured again")
    return now
