"""The generators of one service: the everyday one, one that takes over under load, and their swap."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from pathlib import Path

from service.generator.generator import Generator, State
from service.generator.launching import Serving
from service.generator.requests import Generation, Stream
from service.problems import RequestError

log = logging.getLogger(__name__)


class Pool:
    """At most two workers: `main`, and where it was given `relief`, which new requests go to under load.

    Use it on one event loop. While both compute they share the CPUs.
    """

    def __init__(self, logs: Path, *, queue: int, on_work: Callable[[bool], None]) -> None:
        """`on_work` is told whether any request is in a generator, before one begins and after the last."""
        self.relief: Generator | None = None
        self._main: Generator | None = None
        self._logs = logs
        self._queue = queue
        self._on_work = on_work
        self._retired: set[Generator] = set()
        self._keys = itertools.count()
        self._swapping = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._relieving: asyncio.Task[None] | None = None
        self._wanted_relief: Serving | None = None
        self._is_working = False

    @property
    def main(self) -> Generator:
        """The generator that serves where there is no load."""
        if self._main is None:
            raise RuntimeError("no generator was started")
        return self._main

    @property
    def generators(self) -> tuple[Generator, ...]:
        """All that have a worker, also those that only end what they began."""
        found = (self._main, self.relief, *self._retired)
        return tuple(generator for generator in found if generator is not None)

    @property
    def is_swapping(self) -> bool:
        """Whether a worker is being started in place of another one, or beside it."""
        return self._swapping.locked()

    @property
    def load(self) -> tuple[int, int]:
        """Requests that run, and that wait, in all generators."""
        loads = [generator.load for generator in self.generators]
        return sum(running for running, _ in loads), sum(waiting for _, waiting in loads)

    @property
    def restarts(self) -> int:
        """Workers that were started again."""
        return sum(generator.restarts for generator in self.generators)

    async def start(self, serving: Serving) -> State:
        """Begin to serve; requests are taken at once. The state once the first start has come to an end."""
        self._main = self._new(serving, "generator.log")
        self._main.start()
        return await self._main.settled()

    async def relieve(self, serving: Serving) -> None:
        """Start the second worker; where it does not come up, everything stays with the first."""
        self._wanted_relief = serving
        async with self._swapping:
            self.relief = await self._started(serving, "generator-load.log")
            self._on_load()

    def submit(self, request: Generation) -> Stream:
        """Queue a request where it is served best. Raises RequestError as `Generator.submit`."""
        return self._choice().submit(request)

    def _choice(self) -> Generator:
        """The second worker while as many requests are here as the main one was tuned for, or more."""
        main, relief = self.main, self.relief
        if relief is None or relief.state is not State.READY:
            return main
        if main.state is not State.READY:
            return relief
        return relief if sum(self.load) >= main.serving.tuned_streams else main

    async def swap(self, serving: Serving, relief: Serving | None = None) -> None:
        """Serve something else from now on: no request is dropped, what runs ends where it runs.

        A new worker is warm before it gets a request. Raises RequestError where it does not come up; the old
        ones serve on then.
        """
        async with self._swapping:
            await self._alone()
            old = self.main
            try:
                new = await self._started(serving, "generator.log")
            except RequestError:
                self.relieve_later(self._wanted_relief)
                raise
            self._main = new
            self._retire(old)
            for stream in old.give_up_waiting():
                new.adopt(stream)
            self._on_load()
            log.info("serving %s", serving.profile_id or "the defaults")
            self.relieve_later(relief)

    def relieve_later(self, serving: Serving | None) -> None:
        """Start the second worker, where one is wanted, once there is a place for it: the one before it ends
        what it began."""
        self._wanted_relief = serving
        if self._relieving is not None:
            self._relieving.cancel()
        if serving is not None:
            self._relieving = asyncio.create_task(self._replace_relief(serving), name="relieving")

    async def _replace_relief(self, serving: Serving) -> None:
        await self._end_relief()
        try:
            await self.relieve(serving)
        except RequestError as error:
            log.error("no second worker: %s", error)

    async def close(self) -> None:
        """End everything."""
        tasks = [*self._retiring, *([self._relieving] if self._relieving else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(generator.close() for generator in self.generators))

    def _new(self, serving: Serving, log_name: str) -> Generator:
        return Generator(
            serving, self._logs / log_name, queue=self._queue, keys=self._keys, on_load=self._on_load
        )

    async def _started(self, serving: Serving, log_name: str) -> Generator:
        """A generator whose worker is warm; RequestError where it is not to be had."""
        new = self._new(serving, log_name)
        new.share(self._is_working)
        new.start()
        try:
            if await new.settled() is not State.READY:
                raise RequestError(
                    503, f"the new worker did not start: {new.reason}", "unavailable_error", retry_after_s=30
                )
            new.share(False)
        except BaseException:
            await new.close()
            raise
        return new

    async def _alone(self) -> None:
        """Free the second worker's place: whoever has it ends what it began."""
        if self._relieving is not None:
            self._relieving.cancel()
            await asyncio.gather(self._relieving, return_exceptions=True)
        await self._end_relief()

    async def _end_relief(self) -> None:
        relief, self.relief = self.relief, None
        if relief is not None:
            self._retire(relief)
        await asyncio.gather(*self._retiring)

    def _retire(self, generator: Generator) -> None:
        self._retired.add(generator)

        async def retire() -> None:
            await generator.drained()
            await generator.close()
            self._retired.discard(generator)

        task = asyncio.create_task(retire(), name="retiring")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _on_load(self) -> None:
        busy = [generator for generator in self.generators if generator.is_busy]
        if bool(busy) != self._is_working:
            self._is_working = bool(busy)
            self._on_work(self._is_working)
        for generator in self.generators:
            generator.share(len(busy) > 1)
