"""Searches that were started over HTTP: each one is a `cputune search` child, one at a time."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from service.problems import RequestError
from service.stopping import Stopping
from tuner import process
from tuner.cli import exit_codes
from tuner.home import Home

QUIET_S = 1.0
"""A search goes on when there was no work for so long: requests of one user come one after another."""
GRACE_S = 5.0
"""What a search gets to end by itself after it was cancelled."""
LAST_GRACE_S = 2.5
"""The same where the service itself is to end."""
KEPT_JOBS = 50
KEPT_EVENTS = 5000
"""Of one search; the oldest go first."""


class JobState(StrEnum):
    """How far a search came."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass
class Job:
    """One search; `said` counts its events, each of which has its place among all of them as its id."""

    id: str
    arguments: tuple[str, ...]
    started_at: datetime
    state: JobState = JobState.RUNNING
    ended_at: datetime | None = None
    error: str | None = None
    result: dict[str, Any] | None = None
    command: str = "search"
    is_cancelled: bool = False
    stopping: Stopping = field(default_factory=Stopping)
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    said: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, event: dict[str, Any]) -> None:
        """Add an event and wake everyone who watches."""
        self.events.append(event)
        self.said += 1
        woken, self.changed = self.changed, asyncio.Event()
        woken.set()

    def document(self) -> dict[str, Any]:
        """The job as an answer."""
        return {
            "id": self.id,
            "state": str(self.state),
            "command": ["cputune", self.command, *self.arguments],
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "ended_at": self.ended_at.isoformat(timespec="seconds") if self.ended_at else None,
            "error": self.error,
            "is_stopped": self.stopping.is_stopped,
            "stopped_s": round(self.stopping.total_s, 1),
            "events": self.said,
            "result": self.result,
        }

    async def watch(
        self, after: int, silence_s: float | None = None
    ) -> AsyncIterator[tuple[int, dict[str, Any]] | None]:
        """The events from place `after` on, as they come, until the search has ended.

        None stands for each `silence_s` without an event.
        """
        at = max(0, after)
        while True:
            changed = self.changed
            while at < self.said:
                at = max(at, self.said - len(self.events))
                yield at, self.events[at - self.said]
                at += 1
            if self.state is not JobState.RUNNING:
                return
            try:
                await asyncio.wait_for(changed.wait(), silence_s)
            except TimeoutError:
                yield None


class Jobs:
    """Every search that this service started; use it on one event loop."""

    def __init__(self, home: Home, storage: str | None) -> None:
        self._home = home
        self._storage = storage
        self._jobs: dict[str, Job] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_giving_way = False
        self._going_on: asyncio.TimerHandle | None = None

    @property
    def running(self) -> Job | None:
        """The search that runs."""
        return next((job for job in self._jobs.values() if job.state is JobState.RUNNING), None)

    @property
    def pid(self) -> int | None:
        """The process id of the search that runs."""
        return self._child.pid if self.running and self._child else None

    def every(self) -> list[Job]:
        """All known searches, the last one first."""
        return list(reversed(self._jobs.values()))

    def job(self, job_id: str) -> Job:
        """A search by its id; RequestError for an unknown one."""
        found = self._jobs.get(job_id)
        if found is None:
            raise RequestError(404, f"search '{job_id[:50]}' is unknown: see /v1/searches", "not_found_error")
        return found

    async def start(self, arguments: Sequence[str], *, command: str = "search", nice: int = 0) -> Job:
        """Start `cputune search ARGUMENTS`, or `cputune compare`; RequestError 409 while one runs.

        `nice` lowers its priority, from 0 to 19.
        """
        busy = self.running
        if busy is not None:
            raise RequestError(
                409,
                f"{busy.command} {busy.id} runs: wait for it, or cancel it",
                "conflict_error",
                code="busy",
            )
        job = Job(secrets.token_hex(4), tuple(arguments), datetime.now(UTC), command=command)
        self._jobs[job.id] = job
        while len(self._jobs) > KEPT_JOBS:
            del self._jobs[next(iter(self._jobs))]
        # Not among the words, which every user of the machine may read: a URL may hold a password.
        storage = {"CPUTUNE_STORAGE": self._storage} if self._storage else {}
        progress = ["--progress", "json"] if command == "search" else []
        words = [command, *arguments, "--json", *progress]
        out, err = os.pipe(), os.pipe()
        try:
            self._child = process.spawn(
                process.python_argv("tuner.cli.main", *words),
                environment=process.python_environment()
                | {"CPUTUNE_HOME": str(self._home.root), **storage, **job.stopping.environment},
                stdout=out[1],
                stderr=err[1],
                pass_fds=job.stopping.pass_fds,
            )
        except BaseException:
            del self._jobs[job.id]
            job.stopping.close()
            os.close(out[0])
            os.close(err[0])
            raise
        finally:
            os.close(out[1])
            os.close(err[1])
        if nice:
            process.lower_priority(self._child.pid, nice)
        self._task = asyncio.create_task(self._follow(job, self._child, out[0], err[0]))
        if self._is_giving_way:
            self._stop()
        return job

    def give_way(self, is_working: bool) -> None:
        """Stop what measures while the generator works, and let it go on a moment after."""
        self._is_giving_way = is_working
        if self._going_on is not None:
            self._going_on.cancel()
            self._going_on = None
        if is_working:
            self._stop()
        else:
            self._going_on = asyncio.get_running_loop().call_later(QUIET_S, self._go_on)

    def _stop(self) -> None:
        job = self.running
        if job is None or job.is_cancelled or self._child is None or self._child.poll() is not None:
            return
        if not job.stopping.is_stopped:
            job.stopping.stop(self._child.pid)
            job.say({"event": "stopped"})

    def _go_on(self) -> None:
        job = self.running
        if job is not None and job.stopping.is_stopped:
            job.stopping.go_on()
            job.say({"event": "continued", "stopped_s": round(job.stopping.total_s, 1)})

    async def cancel(self, job: Job, grace_s: float = GRACE_S) -> None:
        """End a search as Ctrl-C would: what it finished is kept. After `grace_s` it is killed.

        It runs until it has ended: only then another one may begin.
        """
        child, task = self._child, self._task
        if job.state is not JobState.RUNNING or child is None or task is None:
            return
        if not job.is_cancelled:
            job.is_cancelled = True
            job.stopping.go_on()
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGINT)
        _done, late = await asyncio.wait({task}, timeout=grace_s)
        if late:
            process.kill_group(child, grace_s=0.0)
            await task

    async def close(self) -> None:
        """Cancel what runs."""
        if self._going_on is not None:
            self._going_on.cancel()
        if self.running is not None:
            await self.cancel(self.running, LAST_GRACE_S)

    async def _follow(self, job: Job, child: subprocess.Popen[bytes], out: int, err: int) -> None:
        document, last = await asyncio.gather(_read_all(out), self._read_events(job, err))
        returncode = await asyncio.to_thread(child.wait)
        process.kill_group(child, grace_s=0.0)
        job.stopping.close()
        with suppress(ValueError):
            job.result = json.loads(document)
        if job.is_cancelled:
            job.state = JobState.CANCELLED
        else:
            known = returncode in (exit_codes.DONE, exit_codes.NOTHING_FEASIBLE) and job.result is not None
            job.state = JobState.DONE if known else JobState.FAILED
        if job.state is JobState.FAILED:
            job.error = last or process.describe_exit(returncode)[1]
        job.ended_at = datetime.now(UTC)
        job.say({"event": "end", "state": str(job.state), "error": job.error})

    async def _read_events(self, job: Job, fd: int) -> str:
        """Take every line as an event; the last one that is none is the error's."""
        last = ""
        reader = await _reader(fd)
        while line := await reader.readline():
            try:
                event = json.loads(line)
            except ValueError:
                last = line.decode(errors="replace").strip().removeprefix("cputune: ")
            else:
                job.say(event)
        return last


async def _reader(fd: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
    )
    return reader


async def _read_all(fd: int) -> bytes:
    return await (await _reader(fd)).read()
