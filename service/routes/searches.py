"""Searches over HTTP: start, watch, cancel."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from service import documents
from service.jobs import Job
from service.problems import RequestError
from service.routes.contents import EVENTS
from service.schemas import Name
from service.state import ServiceState, state_of
from service.streaming import KEEP_ALIVE, KEEP_ALIVE_S
from tuner import engines
from tuner.request import parse_budget_s, parse_limits, quality_named, with_objective, workload_named

router = APIRouter(prefix="/v1/searches", tags=["searches"])


class SearchBody(BaseModel):
    """What `cputune search` is asked for; models only by their registered names."""

    model_config = ConfigDict(extra="forbid")

    model: Name | None = None
    workload: Name = "chat"
    objective: Name | None = None
    quality: Name = "near-lossless"
    limits: list[Name] = Field([], max_length=20)
    engines: list[Name] | None = Field(None, min_length=1, max_length=20)
    budget: Name = "5m"
    seed: int = Field(0, ge=0, lt=2**31)
    fresh: bool = False

    def arguments(self, service: ServiceState) -> list[str]:
        """The checked request as arguments; UsageError or NotFoundError for what is unknown."""
        with_objective(workload_named(self.workload), self.objective)
        quality_named(self.quality)
        parse_budget_s(self.budget)
        words = ["--workload", self.workload, "--quality", self.quality, "--budget", self.budget]
        if self.model is not None:
            known = [record.name for record in service.store.models()]
            if self.model not in known:
                raise RequestError(
                    404,
                    f"model '{self.model[:100]}' is not registered: known are {', '.join(known) or 'none'}",
                    "not_found_error",
                    "model",
                )
            words += ["--model", self.model]
        for name in self.engines or ():
            engines.get(name)
        words += ["--engines", ",".join(self.engines)] if self.engines else []
        words += ["--objective", self.objective] if self.objective else []
        for limit in parse_limits(self.limits):
            words += ["--limit", str(limit)]
        words += ["--seed", str(self.seed)]
        return words + (["--fresh"] if self.fresh else [])


@router.get("", response_model=documents.Searches)
async def searches(request: Request) -> dict[str, Any]:
    """The searches that this service started, the last one first."""
    return {"searches": [job.document() for job in state_of(request).jobs.every()]}


@router.post("", status_code=202, response_model=documents.SearchState)
async def start(request: Request, body: SearchBody) -> dict[str, Any]:
    """Start a search; 409 while another one runs."""
    service = state_of(request)
    if service.degraded is not None:
        raise RequestError(503, service.degraded, "unavailable_error", code="degraded", retry_after_s=60)
    return (await service.jobs.start(body.arguments(service))).document()


@router.get("/{search_id}", response_model=documents.SearchState)
async def search(request: Request, search_id: str) -> dict[str, Any]:
    """How far a search is, and its answer once it has one."""
    return state_of(request).jobs.job(search_id).document()


@router.delete("/{search_id}", response_model=documents.SearchState)
async def cancel(request: Request, search_id: str) -> dict[str, Any]:
    """End a search as Ctrl-C would; what it finished is kept."""
    service = state_of(request)
    job = service.jobs.job(search_id)
    await service.jobs.cancel(job)
    return job.document()


@router.get("/{search_id}/events", response_class=StreamingResponse, responses={200: {"content": EVENTS}})
async def events(
    request: Request, search_id: str, last_event_id: Annotated[int | None, Header(ge=-1)] = None
) -> StreamingResponse:
    """The events of a search from its beginning, or after Last-Event-ID, as they come."""
    job = state_of(request).jobs.job(search_id)
    after = 0 if last_event_id is None else last_event_id + 1
    return StreamingResponse(
        _lines(job, after),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache, no-store", "X-Accel-Buffering": "no"},
    )


async def _lines(job: Job, after: int) -> AsyncIterator[bytes]:
    async for said in job.watch(after, KEEP_ALIVE_S):
        yield KEEP_ALIVE if said is None else f"id: {said[0]}\ndata: {json.dumps(said[1])}\n\n".encode()
