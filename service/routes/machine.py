"""The machine that the service runs on."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from service.state import state_of
from tuner.cli.documents import Probe

router = APIRouter(tags=["machine"])


@router.get("/v1/machine", response_model=Probe)
async def machine(request: Request) -> Response:
    """This machine, as `cputune probe --json` prints it."""
    return JSONResponse(state_of(request).machine.to_json())
