"""Published profiles: the best for this machine, one by its id, all of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from profiles.documents import ProfileDocument
from profiles.records import ProfileRecord
from service import documents
from service.answers import best_answer, check_format, written
from service.routes.contents import TEXTS
from service.state import state_of

router = APIRouter(prefix="/v1/profiles", tags=["profiles"])

Page = Annotated[int, Query(ge=1, le=1000, description="How many to list.")]
Offset = Annotated[int, Query(ge=0, le=1_000_000, description="How many to leave out first.")]


@router.get(
    "/best",
    response_model=ProfileDocument,
    responses={200: {"content": TEXTS}, 304: {"description": "The tag is still right"}},
)
async def best(
    request: Request,
    model: str | None = None,
    workload: str = "chat",
    objective: str | None = None,
    quality: str = "near-lossless",
    streams: Annotated[int | None, Query(ge=1, le=256)] = None,
    format: str = "json",
) -> Response:
    """The best published profile for this machine.

    404 says what is missing and the command that finds it. A repeated request with If-None-Match costs 304.
    """
    service = state_of(request)
    question = (model, workload, objective, quality, streams, format)
    answer = await service.answers.get(
        (service.machine.fingerprint, *question), lambda: best_answer(service, *question)
    )
    if answer.etag in [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers={"ETag": answer.etag})
    return Response(answer.body, media_type=answer.media_type, headers={"ETag": answer.etag})


@router.get("", response_model=documents.Profiles)
def profiles(
    request: Request,
    model: str | None = None,
    machine: str | None = None,
    workload: str | None = None,
    limit: Page = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Published profiles that match every filter given, newest first; `machine` is a fingerprint."""
    store = state_of(request).store
    records = store.profiles(
        model_digest=None if model is None else store.model(model).info.digest,
        fingerprint=machine,
        workload_name=workload,
        limit=limit,
        offset=offset,
    )
    return {"profiles": [summary(record) for record in records], "limit": limit, "offset": offset}


@router.get("/{profile_id}", response_model=ProfileDocument, responses={200: {"content": TEXTS}})
def profile(request: Request, profile_id: str, format: str = "json") -> Response:
    """A profile in full, or as something that starts it elsewhere."""
    service = state_of(request)
    check_format(format)
    body, media_type = written(service, service.store.profile(profile_id), format)
    return Response(body, media_type=media_type)


def summary(record: ProfileRecord) -> dict[str, Any]:
    """What a list shows of a profile."""
    speedup = record.speedup
    return {
        "id": record.id,
        "created_at": record.created_at.isoformat(timespec="seconds"),
        "model": record.model_digest,
        "machine": record.fingerprint,
        "workload": record.workload.name,
        "objective": record.objectives[0].metric,
        "quality": record.quality_level,
        "status": str(record.status),
        "conditions": record.conditions,
        "config": record.config.to_json(),
        "speedup": None
        if speedup is None
        else {"ratio": speedup.estimate, "low": speedup.low, "high": speedup.high},
        "invalidated": record.invalidated,
    }
