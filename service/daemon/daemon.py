"""The daemon: a service, and the watcher that keeps what it runs right."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from probes.errors import CputuneError
from service.app import serve_generator
from service.daemon import memory as side_file
from service.daemon.decide import Action, Decision
from service.daemon.here import Here, OtherWork
from service.daemon.live import Ear
from service.daemon.settings import Configuration
from service.daemon.tick import Watcher
from service.generator.launching import DEFAULTS
from service.problems import RequestError
from service.state import ServiceState

log = logging.getLogger(__name__)

FOLLOW_S = 3.0
"""How often the history is asked whether somebody else decided, as `cputune rollback` does."""


class Daemon:
    """Keeps one service; `keep` is what the application runs in place of `serve_generator`."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.watcher: Watcher | None = None
        self._service: ServiceState | None = None

    async def keep(self, service: ServiceState) -> None:
        """Run what the history says, then look, tick after tick, until it is cancelled."""
        self._service = service
        here = Here(service, self.configuration)
        settings = self.configuration.current
        ear = Ear(here.live_latencies, OtherWork(service), settings.busy_share)
        service.on_request = ear.begin
        here.last_request_s = lambda: ear.last_s
        remembered, problem = side_file.load(here.memory_path)
        if problem is not None:
            log.warning("%s", problem)
        watcher = self.watcher = Watcher(here, remembered, settings.rules)
        service.daemon = self.document
        begun = await self._begin(watcher, service)
        service.settings = service.settings.model_copy(update={"follow": False})
        await serve_generator(service)
        if not begun:
            # It was not known what to run: the best or the defaults run now, and the first tick says what.
            service.settings = service.settings.model_copy(update={"profile": None})
        async with asyncio.TaskGroup() as both:
            both.create_task(self._tick(watcher, here, begun))
            both.create_task(self._follow(watcher))

    async def _begin(self, watcher: Watcher, service: ServiceState) -> bool:
        try:
            running = await watcher.begin()
        except (CputuneError, OSError) as error:
            log.error("what is to run can't be told yet: %s", error)
            return False
        service.settings = service.settings.model_copy(update={"profile": running or DEFAULTS})
        return True

    async def _tick(self, watcher: Watcher, here: Here, begun: bool) -> None:
        while True:
            settings = self.configuration.refresh()
            watcher.rules = settings.rules
            try:
                if not begun:
                    await here.run(await watcher.begin())
                    begun = True
                if settings.watch:
                    await watcher.tick()
                else:
                    watcher.last = Decision(Action.WAIT, "watching is switched off")
            except (CputuneError, OSError) as error:
                watcher.last = Decision(Action.WAIT, f"this tick failed: {error}")
                log.error("%s", watcher.last)
            await asyncio.sleep(60 * settings.tick_minutes)

    async def _follow(self, watcher: Watcher) -> None:
        while True:
            await asyncio.sleep(FOLLOW_S)
            try:
                await watcher.follow()
            except (CputuneError, OSError) as error:
                log.error("the history can't be followed: %s", error)

    async def roll_back(self, reason: str) -> dict[str, Any]:
        """Give up what runs for what ran before; RequestError 404 where nothing came before it."""
        watcher = self._begun()
        await watcher.roll_back(reason)
        return self.document()

    def document(self) -> dict[str, Any]:
        """How it stands, as an answer."""
        watcher, service = self._begun(), self._service
        assert service is not None
        memory, charts = watcher.memory, watcher.charts()
        return {
            "running": watcher.running,
            "last": {
                "action": str(watcher.last.action),
                "reason": watcher.last.reason,
                "waits_for": watcher.last.waits_for,
            },
            "degraded": service.degraded,
            "configuration_problem": self.configuration.problem,
            "spent_minutes": round(memory.spent.seconds / 60, 1),
            "daily_minutes": self.configuration.current.daily_minutes,
            "drift": {
                name: {"sum": round(chart.sum, 4), "limit": round(chart.limit, 4)}
                for name, chart in (
                    ("relative", charts.relative), ("machine", charts.common), ("live", charts.live)
                )
            },
            "on_trial": memory.trial is not None,
            "machine_slower_sets": memory.slow_sets,
        }  # fmt: skip

    def _begun(self) -> Watcher:
        if self.watcher is None:
            raise RequestError(503, "the daemon is being started", "unavailable_error", retry_after_s=5)
        return self.watcher
