"""The generator: requests that wait, run, stream and end, over a worker that is restarted when it dies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from profiles.vocabulary import Setting
from service.generator.launching import Serving
from service.generator.link import Link
from service.problems import RequestError

log = logging.getLogger(__name__)

CLOSE_S = 2.0
"""What a worker gets to free its engine."""
BACKOFF_S = (0.0, 1.0, 5.0, 15.0, 30.0)
"""Waits before successive restarts of a worker that did not become ready."""


class State(StrEnum):
    """Where a generator is; requests wait in all of them but `CLOSED` and `FAILED`."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True)
class Generation:
    """One request: `messages` or `prompt`; None for `max_tokens` is all that the context holds."""

    messages: tuple[Mapping[str, str], ...] | None
    prompt: str | None
    max_tokens: int | None
    sampling: Mapping[str, float | int]
    stop: tuple[str, ...] = ()
    drop_old_turns: bool = False
    ignore_eos: bool = False

    def message(self, key: int) -> dict[str, object]:
        """As it is sent to the worker."""
        text = {"prompt": self.prompt} if self.messages is None else {"messages": list(self.messages)}
        return {
            "op": "add",
            "key": key,
            "max_tokens": self.max_tokens,
            "sampling": dict(self.sampling),
            "stop": list(self.stop),
            "drop_old_turns": self.drop_old_turns,
            "ignore_eos": self.ignore_eos,
            **text,
        }


@dataclass(frozen=True)
class End:
    """How a request ended; times are the worker's, from when it got the request."""

    finish: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_ms: float
    tpot_ms: float | None


@dataclass
class Stream:
    """The pieces of one answer as they come; iterate over it. `end` is set when the iteration ends."""

    key: int
    request: Generation
    cancel: Callable[[], None]
    submitted_s: float
    prompt_tokens: int | None = None
    started_s: float | None = None
    end: End | None = None
    _pieces: asyncio.Queue[str | End | RequestError] = field(default_factory=asyncio.Queue)

    def put(self, item: str | End | RequestError) -> None:
        """Called by the generator."""
        self._pieces.put_nowait(item)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        item = await self._pieces.get()
        if isinstance(item, str):
            return item
        if isinstance(item, RequestError):
            raise item
        self.end = item
        raise StopAsyncIteration


class Generator:
    """Serves requests with one engine on one file; make it and use it on one event loop."""

    def __init__(self, serving: Serving, log_path: Path, *, queue: int) -> None:
        self.serving = serving
        self.state = State.STARTING
        self.reason: str | None = None
        self.effective: Mapping[str, Setting] = {}
        self.restarts = 0
        self._log_path = log_path
        self._queue = queue
        self._keys = itertools.count()
        self._waiting: deque[Stream] = deque()
        self._running: dict[int, Stream] = {}
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()

    @property
    def load(self) -> tuple[int, int]:
        """Requests that run, and that wait."""
        return len(self._running), len(self._waiting)

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id; None while there is none."""
        return self._link.pid if self._link else None

    def start(self) -> None:
        """Begin to start the worker."""
        self._task = asyncio.create_task(self._supervise(), name="generator")

    async def settled(self) -> State:
        """The state once the first start has come to an end."""
        await self._settled.wait()
        return self.state

    def submit(self, request: Generation) -> Stream:
        """Queue a request. Raises RequestError when the queue is full or the generator can't serve."""
        if self.state in (State.FAILED, State.CLOSED):
            reason = self.reason or "it is being shut down"
            raise RequestError(
                503, f"the generator does not run: {reason}", "unavailable_error", retry_after_s=30
            )
        # What runs at once needs no place in the queue.
        if len(self._waiting) + len(self._running) >= self._queue + self.serving.streams:
            raise RequestError(
                429,
                f"{len(self._running)} requests run and {len(self._waiting)} wait: try again later",
                "overloaded_error",
                code="queue_full",
                retry_after_s=self._likely_wait_s(),
            )
        key = next(self._keys)
        stream = Stream(key, request, lambda: self._cancel(key), time.monotonic())
        self._waiting.append(stream)
        self._dispatch()
        return stream

    async def close(self) -> None:
        """End all requests with an error and the worker with it."""
        self.state = State.CLOSED
        self._fail_all(
            RequestError(503, "the service is shutting down", "unavailable_error", retry_after_s=5)
        )
        if self._link is not None:
            self._link.send({"op": "close"})
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

    def _likely_wait_s(self) -> int:
        """Until the oldest running request might end: as long as it has run; 1 to 60 s."""
        oldest = min((stream.submitted_s for stream in self._running.values()), default=time.monotonic())
        return max(1, min(60, round(time.monotonic() - oldest)))

    def _dispatch(self) -> None:
        while (
            self.state is State.READY
            and self._link is not None
            and self._waiting
            and len(self._running) < self.serving.streams
        ):
            stream = self._waiting.popleft()
            stream.started_s = time.monotonic()
            self._running[stream.key] = stream
            self._link.send(stream.request.message(stream.key))

    def _cancel(self, key: int) -> None:
        stream = self._running.pop(key, None)
        if stream is not None and self._link is not None:
            self._link.send({"op": "cancel", "key": key})
        self._waiting = deque(waiting for waiting in self._waiting if waiting.key != key)
        self._dispatch()

    async def _supervise(self) -> None:
        """Keep a worker running; after one that ended before it was ready, wait longer each time."""
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
            problem = RequestError(
                503,
                f"the worker ended: {self.reason}",
                "server_error",
                code="worker_failed",
                retry_after_s=5,
            )
            for stream in tuple(self._running.values()):
                stream.put(problem)
            self._running.clear()
            if self.state is State.FAILED:
                self._fail_all(problem)
                return

    async def _live(self) -> bool:
        """One worker's life; whether it became ready. `reason` says how it ended."""
        was_ready = False
        try:
            self._link = link = await Link.start(self.serving, self._log_path)
        except OSError as error:
            self.reason = str(error)
            return False
        fatal = None
        async for message in link.messages():
            if message["event"] == "ready":
                was_ready = True
                self.effective = message["effective"]
                self.reason = None
                self.state = State.READY
                self._settled.set()
                log.info("the worker is ready after %.0f ms", message["load_ms"])
                self._dispatch()
            elif message["event"] == "fatal":
                fatal = str(message["message"])
            else:
                self._hear(message)
        if not self._is_closed():
            ended = link.ending()
            self.reason = fatal or ended
            self._link = None
        return was_ready

    def _hear(self, message: Mapping[str, Any]) -> None:
        event = message["event"]
        if event == "tokens":
            for key, piece in message["pieces"]:
                stream = self._running.get(key)
                if stream is not None and piece:
                    stream.put(piece)
            return
        stream = self._running.get(message["key"])
        if stream is None:
            return
        if event == "accepted":
            stream.prompt_tokens = message["prompt_tokens"]
            return
        del self._running[stream.key]
        if event == "end":
            stream.put(
                End(**{name: value for name, value in message.items() if name in End.__dataclass_fields__})
            )
        elif event == "refused":
            stream.put(RequestError(400, message["message"], param=message["param"], code=message["code"]))
        else:
            stream.put(RequestError(500, message["message"], "server_error", code="engine_failed"))
        self._dispatch()

    def _fail_all(self, problem: RequestError) -> None:
        for stream in (*self._running.values(), *self._waiting):
            stream.put(problem)
        self._running.clear()
        self._waiting.clear()
