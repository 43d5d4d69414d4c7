"""The machine that the service runs on."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from service.state import state_of

router = APIRouter(tags=["machine"])


@router.get("/v1/machine")
async def machine(request: Request) -> dict[str, Any]:
    """This machine, as `cputune probe --json` prints it."""
    return dict(state_of(request).machine.to_json())
