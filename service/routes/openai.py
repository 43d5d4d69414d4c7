"""The OpenAI-compatible endpoints of the generator."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service import documents
from service.generator.launching import DEFAULTS
from service.generator.pool import Pool
from service.generator.requests import End
from service.problems import RequestError
from service.routes.contents import EVENTS
from service.schemas import ChatBody, CompletionBody, GenerateBody
from service.state import ServiceState, state_of
from service.streaming import Answer, Form

router = APIRouter(tags=["generator"])


@router.get("/v1/models", response_model=documents.ServedModels)
async def models(request: Request) -> dict[str, Any]:
    """The model that the generator runs."""
    pool = state_of(request).pool
    served = [] if pool is None else [pool.main.serving]
    return {
        "object": "list",
        "data": [
            {
                "id": serving.model,
                "object": "model",
                "created": 0,
                "owned_by": "cputune",
                "profile": serving.profile_id,
                "context_tokens": serving.context_tokens,
            }
            for serving in served
        ],
    }


@router.post(
    "/v1/chat/completions",
    response_model=documents.ChatCompletion,
    responses={200: {"content": EVENTS}},
)
async def chat(request: Request, body: ChatBody) -> Response:
    """Continue a conversation; as server-sent events with `stream`."""
    service = state_of(request)
    return _answer(service, _pool(service, body), body, is_chat=True)


@router.post("/v1/completions", response_model=documents.Completion, responses={200: {"content": EVENTS}})
async def complete(request: Request, body: CompletionBody) -> Response:
    """Continue a text."""
    service = state_of(request)
    return _answer(service, _pool(service, body), body, is_chat=False)


def _pool(service: ServiceState, body: GenerateBody) -> Pool:
    pool = service.running()
    name = pool.main.serving.model
    if body.model not in (None, "", "default", name):
        raise RequestError(
            404,
            f"model '{str(body.model)[:100]}' is not served here: allowed is '{name}' or 'default'",
            "not_found_error",
            "model",
            "model_not_found",
        )
    return pool


def _answer(service: ServiceState, pool: Pool, body: ChatBody | CompletionBody, *, is_chat: bool) -> Answer:
    asked = body.generation()
    serving = pool.main.serving
    stream = service.remembered.answer(asked, serving)
    if stream is None:
        stream = pool.submit(asked)
        service.remembered.listen(stream)
    heard = service.on_request() if service.on_request else None

    def ended(outcome: str, end: End | None) -> None:
        service.metrics.ended(outcome, end)
        if heard is not None:
            # What somebody tries by hand says nothing of what is kept right.
            is_kept = (stream.profile or DEFAULTS) == service.settings.profile
            heard(end if is_kept else None)

    return Answer(
        stream,
        Form(serving.model, is_chat, body.wants_usage),
        as_events=bool(body.stream),
        deadline_s=service.settings.request_timeout_s,
        ended=ended,
    )
