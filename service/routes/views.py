"""What the web page shows beyond the other endpoints: the overview, the history, a study's charts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from probes.machine import probe
from profiles import select
from profiles.metrics import METRICS, flat_name
from profiles.records import ProfileRecord, digest_of, workload_identity
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS
from service.answers import StoredAnswer
from service.generator.launching import best_published
from service.problems import RequestError
from service.routes.profiles import summary
from service.routes.web import NO_PLOTLY, plotly_script
from service.state import ServiceState, state_of
from tuner import engines, history
from tuner.cli.eventlines import plain
from tuner.cli.history import change
from tuner.export import FORMATS
from tuner.search.recorded import Recorded, recorded
from tuner.why import explanation

router = APIRouter(prefix="/v1", tags=["page"])


@router.get("/overview")
async def overview(request: Request) -> dict[str, Any]:
    """This machine now, what runs, and how the daemon stands if there is one."""
    service = state_of(request)
    # The advice of a probe is about this moment.
    machine = (await asyncio.to_thread(probe)).to_json()
    running = service.jobs.running
    return {
        "machine": {name: machine[name] for name in _MACHINE},
        "generator": await asyncio.to_thread(_generator, service),
        "no_generator": service.no_generator,
        "search": running.id if running and running.command == "search" else None,
        "daemon": service.daemon() if service.daemon else None,
    }


_MACHINE = (
    "fingerprint",
    "hostname",
    "model_name",
    "arch",
    "is_virtual",
    "physical_cores",
    "logical_cpus",
    "effective",
    "memory",
    "inference_isa",
    "caches",
    "advice",
)


@router.get("/best-profiles")
async def best_profiles(request: Request) -> Response:
    """The best profile of each question that was answered on this machine, the newest first."""
    service = state_of(request)

    def made() -> tuple[bytes, str]:
        names = {record.info.digest: record.name for record in service.store.models()}
        return _body({"best": [_best(record, names) for record in _best_of_each(service)]})

    return _stored(await service.answers.get(("best-profiles", service.machine.fingerprint), made))


@router.get("/registered-models")
def registered(request: Request) -> dict[str, Any]:
    """The names of the models that a search may be asked for."""
    return {"models": [record.name for record in state_of(request).store.models()]}


@router.get("/vocabulary")
def vocabulary() -> dict[str, Any]:
    """The names that requests may use, what metrics mean, and why there are no charts if there are none."""
    return {
        "workloads": [workload.to_json() for workload in WORKLOADS.values()],
        "quality_levels": list(QUALITY_LEVELS),
        "metrics": {
            metric.name: {
                "unit": metric.unit,
                "direction": metric.direction,
                "digits": metric.digits,
                "description": metric.description,
            }
            for metric in METRICS.values()
        },
        "engines": list(engines.references()),
        "formats": list(FORMATS),
        "no_charts": None if plotly_script() else NO_PLOTLY,
    }


@router.get("/history")
async def searches(
    request: Request,
    model: str | None = None,
    workload: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many to list.")] = 100,
) -> Response:
    """Searches, the last changed first, each with what is not as in the one before of the same question."""
    service = state_of(request)

    def made() -> tuple[bytes, str]:
        rows = history.searches(service.store, model=model, workload=workload, limit=limit)
        told = [row | {"changes": [change(one) for one in row["changes"]]} for row in rows]
        return _body({"studies": told})

    return _stored(await service.answers.get(("history", model, workload, limit), made))


@router.get("/studies/{study_id}/charts")
def charts(request: Request, study_id: str) -> Response:
    """The charts of a study as Plotly figures by name; 501 where plotly is not installed."""
    if plotly_script() is None:
        raise RequestError(501, NO_PLOTLY, "unavailable_error", code="no_plotly")
    from plotly.io.json import to_json_plotly

    from tuner.search import plots

    found = _recorded(request, study_id)
    made = {"charts": plots.plain(plots.figures(found, found.best))}
    return Response(to_json_plotly(made), media_type="application/json")


@router.get("/studies/{study_id}/explanation")
def why(request: Request, study_id: str) -> dict[str, Any]:
    """Why the best of a study won: what each setting is worth, its rivals, what was lost, what would help."""
    found = _recorded(request, study_id)
    return explanation(found, found.best, found.study.result)


def _body(document: dict[str, Any]) -> tuple[bytes, str]:
    return json.dumps(plain(document)).encode(), "application/json"


def _stored(answer: StoredAnswer) -> Response:
    return Response(answer.body, media_type=answer.media_type)


def _recorded(request: Request, study_id: str) -> Recorded:
    store = state_of(request).store
    return recorded(store, store.study(study_id))


def _best_of_each(service: ServiceState) -> Iterator[ProfileRecord]:
    """The profile to use for each question that was answered on this machine, the newest first."""
    questions: dict[str, list[ProfileRecord]] = {}
    for record in service.store.profiles(fingerprint=service.machine.fingerprint):
        question = digest_of(
            record.model_digest,
            workload_identity(record.workload),
            [[objective.metric, objective.direction] for objective in record.objectives],
            record.quality_level,
            sorted(str(limit) for limit in record.limits),
            _is_made_up(record),
        )
        questions.setdefault(question, []).append(record)
    found = (select.best(records) for records in questions.values())
    yield from sorted(
        (record for record in found if record is not None), key=lambda r: r.created_at, reverse=True
    )


def _best(record: ProfileRecord, names: Mapping[str, str]) -> dict[str, Any]:
    """A profile as the overview shows it."""
    metric = flat_name(record.objectives[0].metric)
    answer = record.facts.get("document")
    default = record.baseline_config
    changes = {name: value for name, value in record.config.settings if default.get(name) != value}
    return {
        **summary(record),
        "model": names.get(record.model_digest, record.model_digest[:12]),
        "workload": record.workload.to_json(),
        "limits": [str(limit) for limit in record.limits],
        "study": record.study_id,
        "value": record.metrics.get(metric),
        "default_value": record.baseline_metrics.get(metric),
        "default_variant": default.variant,
        "changes": changes,
        "metrics": {name: record.metrics[name] for name in _METRICS if name in record.metrics},
        "kl_divergence": record.quality and record.quality.kl_divergence,
        "top1_agreement": record.quality and record.quality.top1_agreement,
        "ceiling": answer.get("ceiling") if isinstance(answer, Mapping) else None,
        "is_made_up": _is_made_up(record),
    }


def _is_made_up(record: ProfileRecord) -> bool:
    return record.config.engine in engines.NEVER_BY_DEFAULT


_METRICS = ("ttft_ms.p50", "decode_tps.p50", "peak_rss_mib")


def _generator(service: ServiceState) -> dict[str, Any] | None:
    """What answers chats now."""
    generator = service.generator
    if generator is None:
        return None
    serving = generator.serving
    best = best_published(service.store, service.machine, service.settings, serving)
    return {
        "state": str(generator.state),
        "reason": generator.reason,
        "model": serving.model,
        "profile": serving.profile_id,
        "engine": serving.config.engine,
        "variant": serving.config.variant,
        "best": best.id if best else None,
    }
