"""What the endpoints of one running service share."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import Request

from probes.machine import Machine
from profiles.store import Store
from service.answers import Answers
from service.generator.generator import Generator
from service.jobs import Jobs
from service.metrics import ServiceMetrics
from service.problems import RequestError
from service.settings import ServeSettings
from tuner.home import Home


@dataclass
class ServiceState:
    """Made when the service starts; `generator` is None where none was asked for, or none can run."""

    settings: ServeSettings
    home: Home
    store: Store
    machine: Machine
    answers: Answers
    jobs: Jobs
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    generator: Generator | None = None
    no_generator: str | None = None
    """Why there is no generator."""

    def running(self) -> Generator:
        """The generator; RequestError where there is none."""
        if self.generator is None:
            raise RequestError(
                503,
                f"no generator runs here: {self.no_generator or 'it is being started'}",
                "unavailable_error",
                retry_after_s=5,
            )
        return self.generator


def state_of(request: Request) -> ServiceState:
    """The state of the application that a request came to."""
    state: ServiceState = request.app.state.service
    return state
