"""The endpoints that only a daemon has: how it stands, and its rollback."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from service.daemon.daemon import Daemon
from service.documents import Document


class LastDecision(Document):
    """What was decided last; `waits_for` says why something that is wanted is not done now."""

    action: str
    reason: str
    waits_for: str | None


class Drift(Document):
    """A chart's sum, a log ratio; above its limit it raises an alarm."""

    sum: float
    limit: float


class DaemonState(Document):
    """How the daemon stands; `running` is a profile's id, null for the engine's defaults.

    `on_trial` says that live latencies since the last promotion are still compared with those before it;
    `machine_slower_sets` how many checks in a row found the machine slower as a whole.
    """

    running: str | None
    last: LastDecision
    degraded: str | None
    configuration_problem: str | None
    spent_minutes: float
    daily_minutes: float
    drift: dict[str, Drift]
    on_trial: bool
    machine_slower_sets: int


class RollbackBody(BaseModel):
    """Why what runs is given up."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("asked for over HTTP", min_length=1, max_length=500)


def router_of(daemon: Daemon) -> APIRouter:
    """The endpoints of one daemon."""
    router = APIRouter(tags=["daemon"])

    @router.get("/v1/daemon", response_model=DaemonState)
    async def state() -> dict[str, Any]:
        """What runs, what was decided last and why, and how near the drift charts are to an alarm."""
        return daemon.document()

    @router.post("/v1/rollback", response_model=DaemonState)
    async def rollback(body: RollbackBody) -> dict[str, Any]:
        """Give up the running profile for what ran before it; no request is dropped."""
        return await daemon.roll_back(body.reason)

    return router
