"""The generator: requests that wait, run, stream and end, over a worker that is restarted when it dies."""

from __future__ import annotations

import itertools
import logging
import time
from asyncio import Event
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from profiles.vocabulary import Setting
from service.generator.keeper import Keeper, State
from service.generator.launching import Serving
from service.generator.requests import End, Generation, Stream
from service.problems import RequestError

__all__ = ["Generator", "State"]

log = logging.getLogger(__name__)


def _nothing() -> None:
    pass


class Generator:
    """Serves requests with one engine on one file; make it and use it on one event loop."""

    def __init__(
        self,
        serving: Serving,
        log_path: Path,
        *,
        queue: int,
        keys: Iterator[int] | None = None,
        on_load: Callable[[], None] = _nothing,
    ) -> None:
        """`queue` requests may wait beside those that run. `keys` numbers requests, for several generators
        that hand them to each other. `on_load` is called when a request came or went, before it runs."""
        self.serving = serving
        self.effective: Mapping[str, Setting] = {}
        self._queue = queue
        self._on_load = on_load
        self._places = serving.streams
        self._is_sharing = False
        self._keys = itertools.count() if keys is None else keys
        self._waiting: deque[Stream] = deque()
        self._running: dict[int, Stream] = {}
        self._drained = Event()
        self._keeper = Keeper(serving, log_path, self)

    @property
    def state(self) -> State:
        """Where the worker is."""
        return self._keeper.state

    @property
    def reason(self) -> str | None:
        """Why the last worker ended; None while one is well."""
        return self._keeper.reason

    @property
    def restarts(self) -> int:
        """Workers that ended by themselves."""
        return self._keeper.restarts

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id; None while there is none."""
        return self._keeper.pid

    @property
    def load(self) -> tuple[int, int]:
        """Requests that run, and that wait."""
        return len(self._running), len(self._waiting)

    @property
    def places(self) -> int:
        """Requests that run at a time: as many as the batch holds, or as its measured steps say."""
        return self._places

    @property
    def is_busy(self) -> bool:
        """Whether any request is not ended yet."""
        return bool(self._running or self._waiting)

    def start(self) -> None:
        """Begin to start the worker."""
        self._keeper.start()

    async def settled(self) -> State:
        """The state once the first start has come to an end."""
        return await self._keeper.settled()

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
        stream = Stream(next(self._keys), request, _nothing, time.monotonic())
        self.adopt(stream)
        return stream

    def adopt(self, stream: Stream) -> None:
        """Queue the stream of another generator that has not begun there, however full the queue is."""
        stream.cancel = lambda: self._cancel(stream.key)
        stream.serving = self.serving
        self._waiting.append(stream)
        self._on_load()
        self._dispatch()

    def give_up_waiting(self) -> list[Stream]:
        """The streams that have not begun, for another generator to adopt."""
        given, self._waiting = list(self._waiting), deque()
        return given

    def share(self, shared: bool) -> None:
        """Leave half of the CPUs to another generator while both compute, or take them all again.

        Threads of two engines that spin on the same CPUs hold each other up a hundredfold.
        """
        if shared != self._is_sharing:
            self._is_sharing = shared
            self._configure()

    async def drained(self) -> None:
        """Until no request is left."""
        while self.is_busy:
            self._drained.clear()
            await self._drained.wait()

    async def close(self) -> None:
        """End all requests with an error and the worker with it; twice is once."""
        self._fail_all(
            RequestError(503, "the service is shutting down", "unavailable_error", retry_after_s=5)
        )
        await self._keeper.close()

    # --- what the keeper asks and tells --------------------------------------------------------

    @property
    def settings(self) -> Mapping[str, Setting]:
        """Those of run scope, as they should be now."""
        return self.serving.shared_settings if self._is_sharing else self.serving.run_settings

    @property
    def is_computing(self) -> bool:
        """Whether the worker has a request."""
        return bool(self._running)

    def on_ready(self, message: Mapping[str, Any]) -> None:
        """Let those that waited begin."""
        self.effective = message["effective"]
        self._places = self.serving.streams
        # What it was told while it loaded.
        self._configure()
        self._dispatch()

    def on_message(self, message: Mapping[str, Any]) -> None:
        """Hand out what the worker made."""
        event = message["event"]
        if event == "step":
            for key, piece in message["pieces"]:
                stream = self._running.get(key)
                if stream is not None and piece:
                    stream.put(piece)
        elif event == "places":
            self._places = int(message["places"])
            log.info("batches of %d requests pay", self._places)
            self._dispatch()
        else:
            stream = self._running.pop(message["key"], None)
            if stream is not None:
                stream.put(_outcome(message))
                self._left()

    def on_death(self, reason: str) -> None:
        """End what ran; what waits is for the next worker, where one comes."""
        problem = RequestError(
            503, f"the worker ended: {reason}", "server_error", code="worker_failed", retry_after_s=5
        )
        if self.state is State.FAILED:
            self._fail_all(problem)
            return
        for stream in self._running.values():
            stream.put(problem)
        self._running.clear()
        self._left()

    # -------------------------------------------------------------------------------------------

    def _configure(self) -> None:
        if self._keeper.is_ready:
            self._keeper.send({"op": "configure", "run_settings": dict(self.settings)})

    def _likely_wait_s(self) -> int:
        """Until the oldest running request might end: as long as it has run; 1 to 60 s."""
        oldest = min((stream.submitted_s for stream in self._running.values()), default=time.monotonic())
        return max(1, min(60, round(time.monotonic() - oldest)))

    def _dispatch(self) -> None:
        while self._keeper.is_ready and self._waiting and len(self._running) < self._places:
            stream = self._waiting.popleft()
            stream.started_s = time.monotonic()
            if not self._running:
                self._keeper.expect()
            self._running[stream.key] = stream
            self._keeper.send(stream.request.message(stream.key))

    def _cancel(self, key: int) -> None:
        if self._running.pop(key, None) is not None:
            self._keeper.send({"op": "cancel", "key": key})
        self._waiting = deque(waiting for waiting in self._waiting if waiting.key != key)
        self._left()

    def _left(self) -> None:
        """Requests are gone: others may have their places."""
        self._dispatch()
        if not self.is_busy:
            self._drained.set()
        self._on_load()

    def _fail_all(self, problem: RequestError) -> None:
        for stream in (*self._running.values(), *self._waiting):
            stream.put(problem)
        self._running.clear()
        self._waiting.clear()
        self._left()


def _outcome(message: Mapping[str, Any]) -> End | RequestError:
    """How a request ended by what the worker says of it."""
    if message["event"] == "end":
        return End(**{name: value for name, value in message.items() if name in End.__dataclass_fields__})
    if message["event"] == "refused":
        return RequestError(400, message["message"], param=message["param"], code=message["code"])
    return RequestError(500, message["message"], "server_error", code="engine_failed")
