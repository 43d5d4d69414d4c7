"""Whether the service lives, whether it is ready, and what it counted."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service import documents
from service.generator.generator import State
from service.routes.contents import METRICS
from service.state import state_of

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=documents.Health)
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    response_model=documents.Readiness,
    responses={503: {"model": documents.Readiness, "description": "Not ready yet"}},
)
async def readyz(request: Request) -> Response:
    """200 once requests are served as they will be: after the generator's warm-up, where there is one."""
    service = state_of(request)
    found: dict[str, Any] = {"status": "ready", "generator": None, "degraded": service.degraded}
    if service.pool is not None:
        main, relief = service.pool.main, service.pool.relief
        running, waiting = service.pool.load
        found["generator"] = {
            "state": str(main.state),
            "reason": main.reason,
            "model": main.serving.model,
            "profile": main.serving.profile_id,
            "load_profile": None if relief is None else relief.serving.profile_id,
            "running": running,
            "waiting": waiting,
            "places": main.places,
            "restarts": service.pool.restarts,
        }
        if main.state is not State.READY:
            return JSONResponse(found | {"status": "not ready"}, 503, {"Retry-After": "1"})
    elif service.settings.generator:
        found |= {"status": "not ready", "reason": service.no_generator or "the generator is being started"}
        return JSONResponse(found, 503, {"Retry-After": "1"})
    return JSONResponse(found)


@router.get("/metrics", response_class=Response, responses={200: {"content": METRICS}})
async def metrics(request: Request) -> Response:
    """Counters in the text format of Prometheus."""
    service = state_of(request)
    pool = service.pool
    running, waiting = pool.load if pool else (0, 0)
    text = service.metrics.exposition(running, waiting, pool.restarts if pool else 0)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
