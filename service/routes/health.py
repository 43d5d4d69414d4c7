"""Whether the service lives, whether it is ready, and what it counted."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.generator.generator import State
from service.state import state_of

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """200 once requests are served as they will be: after the generator's warm-up, where there is one."""
    service = state_of(request)
    found: dict[str, Any] = {"status": "ready", "generator": None}
    if service.generator is not None:
        running, waiting = service.generator.load
        found["generator"] = {
            "state": str(service.generator.state),
            "reason": service.generator.reason,
            "model": service.generator.serving.model,
            "running": running,
            "waiting": waiting,
            "restarts": service.generator.restarts,
        }
        if service.generator.state is not State.READY:
            return JSONResponse(found | {"status": "not ready"}, 503, {"Retry-After": "1"})
    elif service.settings.generator:
        found |= {"status": "not ready", "reason": service.no_generator or "the generator is being started"}
        return JSONResponse(found, 503, {"Retry-After": "1"})
    return JSONResponse(found)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Counters in the text format of Prometheus."""
    service = state_of(request)
    generator = service.generator
    running, waiting = generator.load if generator else (0, 0)
    text = service.metrics.exposition(running, waiting, generator.restarts if generator else 0)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
