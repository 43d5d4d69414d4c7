"""Advice for any machine: the nearest that is known, brought to it."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from probes.machine import Machine
from service.answers import model_asked
from service.problems import RequestError
from service.routes.contents import TEXTS
from service.schemas import Name
from service.state import state_of
from tuner import engines
from tuner.cli.documents_advice import Recommend
from tuner.cli.recommend import launch_of
from tuner.errors import EngineUnavailableError
from tuner.export import FORMATS, export
from tuner.narrowing import check_names
from tuner.recommend import Question, recommend
from tuner.request import parse_limits, quality_named, with_lengths, with_objective, workload_named

router = APIRouter(prefix="/v1/recommendations", tags=["profiles"])


def _is_sendable(document: dict[str, Any]) -> dict[str, Any]:
    # Parts of it come back in the answer, which holds neither NaN nor halves of surrogate pairs.
    json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    return document


class RecommendationBody(BaseModel):
    """A question about a machine: what `cputune probe --json` prints there, or this one where none is given.

    Lengths take the place of the workload's. `format` gives the answer as `cputune export` writes it.
    """

    model_config = ConfigDict(extra="forbid")

    machine: Annotated[dict[str, Any], AfterValidator(_is_sendable)] | None = None
    model: Name | None = None
    workload: Name = "chat"
    prompt_tokens: int | None = Field(None, ge=1, le=1_000_000)
    output_tokens: int | None = Field(None, ge=1, le=1_000_000)
    streams: int | None = Field(None, ge=1, le=256)
    objective: Name | None = None
    quality: Name = "near-lossless"
    limits: list[Name] = Field([], max_length=20)
    engines: list[Name] | None = Field(None, min_length=1, max_length=20)
    format: Name | None = None

    def question(self, model: str) -> Question:
        """What is asked of `recommend`; UsageError for what is unknown."""
        workload = with_lengths(
            workload_named(self.workload),
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            streams=self.streams,
        )
        for name in self.engines or ():
            engines.get(name)
        return Question(
            model,
            with_objective(workload, self.objective),
            quality_named(self.quality),
            parse_limits(self.limits),
            tuple(self.engines) if self.engines else None,
        )


@router.post("", response_model=Recommend, responses={200: {"content": TEXTS}})
def recommendation(request: Request, body: RecommendationBody) -> Response:
    """The nearest that is known for a machine, without measuring.

    The answer says what it rests on, how far that is, every difference from what was asked, and every
    setting that was brought over to the machine.
    """
    service = state_of(request)
    if body.format is not None:
        check_names("format", (body.format,), tuple(FORMATS))
    machine = service.machine if body.machine is None else Machine.from_json(body.machine)
    question = body.question(model_asked(service, body.model).info.digest)
    try:
        given = recommend(service.store, machine, question)
    except EngineUnavailableError as error:
        # Nothing of this service's is missing: what was asked for can't run this model.
        raise RequestError(400, str(error), param="engines") from error
    if body.format is not None:
        # The file's place on another machine is not ours to say, so it is left to be filled in.
        launch = launch_of(given, service.store, service.home, is_here=False)
        return PlainTextResponse(export(launch, body.format))
    return JSONResponse({"schema_version": 1, **given.to_json()})
