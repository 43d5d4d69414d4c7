"""What the endpoints of one running service share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request

from probes.machine import Machine
from profiles.store import Store
from service.answers import Answers
from service.generator.generator import Generator
from service.generator.pool import Pool
from service.generator.remembered import Remembered
from service.generator.requests import End
from service.jobs import Jobs
from service.metrics import ServiceMetrics
from service.problems import RequestError
from service.settings import ServeSettings
from tuner.home import Home


@dataclass
class ServiceState:
    """Made when the service starts; `pool` is None where no generator was asked for, or none can run."""

    settings: ServeSettings
    home: Home
    store: Store
    machine: Machine
    answers: Answers
    jobs: Jobs
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    remembered: Remembered = field(default_factory=Remembered)
    pool: Pool | None = None
    keeper: asyncio.Task[None] | None = None
    """What looks after the generator."""
    no_generator: str | None = None
    """Why there is no generator."""
    on_request: Callable[[], Callable[[End | None], None]] | None = None
    """Called when a request begins; what it returns is called when it ended, with how if that was answered by
    the profile in the settings."""
    daemon: Callable[[], dict[str, Any]] | None = None
    """How the daemon stands, where one keeps this service."""
    degraded: str | None = None
    """Why nothing can be stored, while requests are answered as before."""

    async def close(self) -> None:
        """End the searches and the generators; their streams get a last event. Twice is once."""
        ending: list[Awaitable[object]] = [self.jobs.close()]
        if self.keeper is not None:
            # At once: what ends now has not failed, and nothing is begun in its place.
            self.keeper.cancel()
            ending.append(asyncio.wait({self.keeper}))
        if self.pool is not None:
            ending.append(self.pool.close())
        await asyncio.gather(*ending)

    @property
    def generator(self) -> Generator | None:
        """The pool's generator for everyday."""
        return None if self.pool is None else self.pool.main

    def running(self) -> Pool:
        """The generators; RequestError where there are none."""
        if self.pool is None:
            raise RequestError(
                503,
                f"no generator runs here: {self.no_generator or 'it is being started'}",
                "unavailable_error",
                retry_after_s=5,
            )
        return self.pool


def state_of(request: Request) -> ServiceState:
    """The state of the application that a request came to."""
    state: ServiceState = request.app.state.service
    return state
