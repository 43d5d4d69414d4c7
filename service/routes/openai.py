"""The OpenAI-compatible endpoints of the generator."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.generator.generator import Generator
from service.problems import RequestError
from service.schemas import ChatBody, CompletionBody, GenerateBody
from service.state import ServiceState, state_of
from service.streaming import Answer, Form

router = APIRouter(tags=["generator"])


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """The model that the generator runs."""
    generator = state_of(request).generator
    served = [] if generator is None else [generator.serving]
    return {
        "object": "list",
        "data": [
            {
                "id": serving.model,
                "object": "model",
                "created": 0,
                "owned_by": "cputune",
                "profile": serving.profile.id if serving.profile else None,
                "context_tokens": serving.context_tokens,
            }
            for serving in served
        ],
    }


@router.post("/v1/chat/completions", response_class=Response)
async def chat(request: Request, body: ChatBody) -> Response:
    """Continue a conversation; as server-sent events with `stream`."""
    service = state_of(request)
    return _answer(service, _generator(service, body), body, is_chat=True)


@router.post("/v1/completions", response_class=Response)
async def complete(request: Request, body: CompletionBody) -> Response:
    """Continue a text."""
    service = state_of(request)
    return _answer(service, _generator(service, body), body, is_chat=False)


def _generator(service: ServiceState, body: GenerateBody) -> Generator:
    generator = service.running()
    name = generator.serving.model
    if body.model not in (None, "", "default", name):
        raise RequestError(
            404,
            f"model '{str(body.model)[:100]}' is not served here: allowed is '{name}' or 'default'",
            "not_found_error",
            "model",
            "model_not_found",
        )
    return generator


def _answer(
    service: ServiceState, generator: Generator, body: ChatBody | CompletionBody, *, is_chat: bool
) -> Answer:
    stream = generator.submit(body.generation())
    form = Form(generator.serving.model, is_chat, body.wants_usage)
    return Answer(
        stream,
        form,
        as_events=body.stream,
        deadline_s=service.settings.request_timeout_s,
        ended=service.metrics.ended,
    )
