"""What the generator runs, and the swap to another profile."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from service import documents
from service.generator.launching import Serving
from service.problems import RequestError
from service.schemas import Name
from service.state import state_of
from service.swapping import swap

router = APIRouter(prefix="/v1/generator", tags=["generator"])


class SwapBody(BaseModel):
    """The profile to run: its id, or "default" for the engine's defaults; the best where none is named."""

    model_config = ConfigDict(extra="forbid")

    profile: Name | None = None


@router.get("", response_model=documents.Running)
async def running(request: Request) -> dict[str, Any]:
    """What answers requests now."""
    return document(state_of(request).running().main.serving)


@router.post("/profile", response_model=documents.Running)
async def other(request: Request, body: SwapBody) -> dict[str, Any]:
    """Run another profile of the same model; no request is dropped.

    Answers once the new worker is warm and gets all new requests; what runs ends where it began.
    """
    service = state_of(request)
    if service.running().is_swapping:
        raise RequestError(
            409, "another profile is being loaded", "conflict_error", code="busy", retry_after_s=5
        )
    return document(await swap(service, body.profile))


def document(serving: Serving) -> dict[str, Any]:
    """What a generator serves, as an answer."""
    return {
        "model": serving.model,
        "profile": serving.profile_id,
        "engine": serving.config.engine,
        "variant": serving.config.variant,
        "settings": serving.config.as_dict(),
    }
