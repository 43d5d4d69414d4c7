"""Keeps one worker running: starts it, hears it, ends one that hangs, starts another when it has died."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from profiles.vocabulary import Setting
from service.generator.launching import Serving
from service.generator.link import Link
from tuner.measurement.protocol import ProtocolError

log = logging.getLogger(__name__)

CLOSE_S = 2.0
"""What a worker gets to free its engine."""
STALLED_S = 120.0
"""A worker that has a request, stands still and says nothing for so long is taken for hung: it speaks after
every batch."""
SILENT_S = 480.0
"""The same where it works: on a slow machine one batch of a long prompt takes minutes."""
WORKS = 0.1
"""CPUs; a worker that uses less stands still."""
START_S = 900.0
"""What a worker gets to load its model."""
BACKOFF_S = (0.0, 1.0, 5.0, 15.0, 30.0)
"""Waits before successive restarts of a worker that did not become ready."""


class State(StrEnum):
    """Where a worker is; requests for it wait in all of them but `CLOSED` and `FAILED`."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    CLOSED = "closed"


class Master(Protocol):
    """Whom a worker works for."""

    @property
    def settings(self) -> Mapping[str, Setting]:
        """The settings of run scope that a worker starts with."""

    @property
    def is_computing(self) -> bool:
        """Whether the worker has anything to do."""

    def on_ready(self, message: Mapping[str, Any]) -> None:
        """A worker is warm."""

    def on_message(self, message: Mapping[str, Any]) -> None:
        """A worker says something."""

    def on_death(self, reason: str) -> None:
        """A worker is gone, and what it had; `state` says whether another one comes."""


class Keeper:
    """One worker at a time for one `Serving`; use it on one event loop."""

    def __init__(self, serving: Serving, log_path: Path, master: Master) -> None:
        self.state = State.STARTING
        self.reason: str | None = None
        self.restarts = 0
        self._serving = serving
        self._log_path = log_path
        self._master = master
        self._link: Link | None = None
        self._heard_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while there is none."""
        return self._link.pid if self._link else None

    @property
    def is_ready(self) -> bool:
        """Whether a worker takes requests."""
        return self.state is State.READY and self._link is not None

    def start(self) -> None:
        """Begin to start the worker."""
        self._task = asyncio.create_task(self._supervise(), name="generator")

    async def settled(self) -> State:
        """The state once the first start has come to an end."""
        await self._settled.wait()
        return self.state

    def send(self, message: Mapping[str, object]) -> None:
        """Send a message to the worker that runs; none gets it where none does."""
        if self._link is not None:
            self._link.send(message)

    def expect(self) -> None:
        """From now on the worker has something to do: it should be heard of."""
        self._heard_s = time.monotonic()

    async def close(self) -> None:
        """End the worker for good; twice is once."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._settled.set()
        self.send({"op": "close"})
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSE_S if self._link else 0)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            self._link.kill()
            # The pipes are closed by the loop's next round.
            await asyncio.sleep(0)

    def _is_closed(self) -> bool:
        return self.state is State.CLOSED

    async def _supervise(self) -> None:
        """After a worker that ended before it was ready, wait longer each time; give up in the end."""
        failures = 0
        while not self._is_closed():
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            was_ready = await self._live()
            if self._is_closed():
                return
            failures = 0 if was_ready else failures + 1
            self.restarts += 1
            first = self.state is State.STARTING
            self.state = State.FAILED if failures >= len(BACKOFF_S) or first else State.RESTARTING
            self._settled.set()
            log.error("the worker ended: %s", self.reason)
            self._master.on_death(self.reason or "unknown")
            if self.state is State.FAILED:
                return

    async def _live(self) -> bool:
        """One worker's life; whether it became ready. `reason` says how it ended."""
        was_ready = False
        try:
            self._link = link = await Link.start(self._serving, self._master.settings, self._log_path)
        except OSError as error:
            self.reason = str(error)
            return False
        fatal = None
        watching = asyncio.create_task(self._watch(link), name="watchdog")
        try:
            async for message in link.messages():
                self._heard_s = time.monotonic()
                if message["event"] == "ready":
                    was_ready = True
                    self._is_up(message)
                elif message["event"] == "fatal":
                    fatal = str(message["message"])
                else:
                    self._master.on_message(message)
        except ProtocolError as error:
            fatal = f"it said {error}"
        finally:
            watching.cancel()
        if not self._is_closed():
            ended = link.ending()
            self.reason = fatal or ended
            self._link = None
        return was_ready

    def _is_up(self, message: Mapping[str, Any]) -> None:
        self.reason = None
        self.state = State.READY
        self._settled.set()
        log.info("the worker is ready after %.0f ms", message["load_ms"])
        self._master.on_ready(message)

    async def _watch(self, link: Link) -> None:
        """End a worker that hangs: then it is as one that died."""
        self._heard_s = looked_s = time.monotonic()
        used_s = link.cpu_s()
        while True:
            await asyncio.sleep(STALLED_S / 4)
            before_s, looked_s = looked_s, time.monotonic()
            used_before_s, used_s = used_s, link.cpu_s()
            works = used_s - used_before_s > WORKS * (looked_s - before_s)
            limit_s = START_S if self.state is not State.READY else SILENT_S if works else STALLED_S
            waited_s = looked_s - self._heard_s
            if waited_s > limit_s and (self._master.is_computing or self.state is not State.READY):
                log.error("the worker said nothing for %.0f s: it is ended", waited_s)
                link.kill()
                return
