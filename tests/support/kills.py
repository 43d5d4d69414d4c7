"""Runs a search in a process of its own that ends as by kill -9 at a named point.

A point is one of
    verb:NAME:N:before     before the commit of the N-th call of a store's verb, counted from 1
    verb:NAME:N:after      after it
    event:KIND:N           at the N-th event of a kind
    round:N                while the N-th round runs in the worker
    making                 while a variant is made
    index:before           before the index is brought up to date
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

from profiles.store import Store
from tests.support.flow import Flow
from tuner import process, tune
from tuner.events import Event, Observer, ignore
from tuner.home import Home
from tuner.measurement.isolation import Worker

FORK_SERVER = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload([__name__, "optuna", "alembic", "profiles.store.schema"])


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def searched(
    home: Path, model: Path, point: str | None, pids: Path, environment: Mapping[str, str], options: Any
) -> int:
    """Run a search in another process; its exit code, minus the signal that ended it.

    The process ids of everything that it started are in the file `pids`, one a line.
    """
    child = FORK_SERVER.Process(target=_search, args=(home, model, point, pids, dict(environment), options))
    child.start()
    child.join(60)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise AssertionError(f"the search went on past {point}")
    return child.exitcode


def living_in(groups: Collection[int]) -> list[int]:
    """The processes of some process groups that still run; one that nobody has reaped yet does not."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX" and int(fields[2]) in groups:
                found.append(int(entry.name))
    return found


def _search(
    home: Path, model: Path, point: str | None, pids: Path, environment: dict[str, str], options: Any
) -> None:
    os.environ.update(environment)
    _record_children(pids)
    observer = ignore if point is None else arm(point)
    Flow(Home(home), model).search(observer=observer, **options)


def arm(point: str) -> Observer:
    """Prepare the end of this process at a point; the observer that a search must be given for it."""
    kind, *rest = point.split(":")
    match kind:
        case "verb":
            _arm_verb(rest[0], int(rest[1]), rest[2])
        case "event":
            return _at_event(rest[0], int(rest[1]))
        case "round":
            _arm_round(int(rest[0]))
        case "making":
            _arm_making()
        case "index":
            _replace(tune, "refresh_index", lambda *_: die())
        case _:
            raise ValueError(f"no such point: {point}")
    return ignore


def _arm_verb(name: str, number: int, moment: str) -> None:
    verb = getattr(Store, name)
    calls = 0

    def counted(store: Store, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and moment == "before":
            event.listen(Engine, "commit", _die_before_commit)
        answer = verb(store, *arguments, **options)
        if calls == number:
            die()
        return answer

    _replace(Store, name, counted)


def _die_before_commit(_connection: Connection) -> None:
    die()


def _at_event(kind: str, number: int) -> Observer:
    seen = 0

    def watch(happened: Event) -> None:
        nonlocal seen
        seen += happened.kind == kind
        if seen == number:
            die()

    return watch


def _arm_round(number: int) -> None:
    """A thread strikes while this one waits for the worker's answer."""
    request = Worker.request
    rounds = 0

    def counted(worker: Worker, op: str, *arguments: Any, **options: Any) -> Any:
        nonlocal rounds
        rounds += op == "round"
        if op == "round" and rounds == number:
            os.kill(worker.pid, signal.SIGSTOP)
            threading.Timer(0.05, die).start()
        return request(worker, op, *arguments, **options)

    _replace(Worker, "request", counted)


def _arm_making() -> None:
    spawn = process.spawn

    def deadly(argv: Any, **options: Any) -> Any:
        child = spawn(argv, **options)
        if any("simulated.make" in word for word in argv):
            command = Path(f"/proc/{child.pid}/cmdline")
            # Not before the launcher has tied the child to this process and become the maker.
            while command.read_bytes().split(b"\0")[1:2] != [b"-P"]:
                os.sched_yield()
            os.kill(child.pid, signal.SIGSTOP)
            die()
        return child

    _replace(process, "spawn", deadly)


def _record_children(pids: Path) -> None:
    spawn = process.spawn

    def noted(*arguments: Any, **options: Any) -> Any:
        child = spawn(*arguments, **options)
        with pids.open("a") as file:
            file.write(f"{child.pid}\n")
        return child

    _replace(process, "spawn", noted)


def _replace(owner: Any, name: str, value: Callable[..., Any]) -> None:
    setattr(owner, name, value)
