"""Studies with their trials and samples: the tuning history."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from fastapi import APIRouter, Request

from profiles.records import StudyRecord, StudyStatus, TrialRecord
from profiles.vocabulary import RoundSamples, TrialStatus
from service import documents
from service.problems import RequestError
from service.routes.profiles import Offset, Page
from service.state import state_of

Status = TypeVar("Status", bound=StrEnum)

router = APIRouter(prefix="/v1/studies", tags=["studies"])


@router.get("", response_model=documents.Studies)
def studies(
    request: Request,
    model: str | None = None,
    machine: str | None = None,
    workload: str | None = None,
    status: str | None = None,
    limit: Page = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Searches that match every filter given, the last changed first; `machine` is a fingerprint."""
    store = state_of(request).store
    records = store.studies(
        model_digest=None if model is None else store.model(model).info.digest,
        fingerprint=machine,
        workload_name=workload,
        status=None if status is None else _status(StudyStatus, status),
        searches_only=True,
        limit=limit,
        offset=offset,
    )
    counts = store.trial_counts([record.id for record in records])
    listed = [{**summary(record), "trials": _named(counts[record.id])} for record in records]
    return {"studies": listed, "limit": limit, "offset": offset}


@router.get("/{study_id}", response_model=documents.StudyInFull)
def study(request: Request, study_id: str) -> dict[str, Any]:
    """One search with the document that it ended with."""
    store = state_of(request).store
    record = store.study(study_id)
    return {
        **summary(record),
        "trials": _named(store.trial_counts([record.id])[record.id]),
        "engine_builds": dict(record.engine_builds),
        "environment": dict(record.environment),
        "request": dict(record.request),
        "result": dict(record.result) or None,
    }


@router.get("/{study_id}/trials", response_model=documents.Trials)
def trials(
    request: Request, study_id: str, status: str | None = None, limit: Page = 100, offset: Offset = 0
) -> dict[str, Any]:
    """A study's trials by number, those of one status only where it is given."""
    store = state_of(request).store
    wanted = None if status is None else [_status(TrialStatus, status)]
    found = store.trials(store.study(study_id).id, statuses=wanted, limit=limit, offset=offset)
    return {"trials": [trial(record) for record in found], "limit": limit, "offset": offset}


@router.get("/{study_id}/samples", response_model=documents.Samples)
def samples(request: Request, study_id: str, limit: Page = 20, offset: Offset = 0) -> dict[str, Any]:
    """The measured rounds of a study's trials, a page of trials at a time."""
    store = state_of(request).store
    found = store.trials(store.study(study_id).id, limit=limit, offset=offset)
    listed = [
        {"trial": record.id, "rounds": [rounds(one) for one in store.trial_rounds(record.id)]}
        for record in found
    ]
    return {"samples": listed, "limit": limit, "offset": offset}


def summary(record: StudyRecord) -> dict[str, Any]:
    """What a list shows of a study."""
    best = record.result.get("best")
    return {
        "id": record.id,
        "name": record.name,
        "status": str(record.status),
        "machine": record.fingerprint,
        "model": record.model_digest,
        "workload": record.workload.name,
        "objective": record.objectives[0].metric,
        "quality": record.quality_level,
        "limits": [str(limit) for limit in record.limits],
        "created_at": record.created_at.isoformat(timespec="seconds"),
        "updated_at": record.updated_at.isoformat(timespec="seconds"),
        "speedup": record.result.get("speedup"),
        "profile": best.get("profile_id") if isinstance(best, dict) else None,
    }


def trial(record: TrialRecord) -> dict[str, Any]:
    """A trial in full."""
    return {
        "id": record.id,
        "number": record.number,
        "stage": record.stage,
        "status": str(record.status),
        "reason": record.reason,
        "engine": record.config.engine,
        "variant": record.config.variant,
        "config": record.config.as_dict(),
        "effective": dict(record.effective),
        "value": record.objective_value,
        "metrics": dict(record.metrics),
        "started_at": record.started_at.isoformat(timespec="seconds"),
        "invalidated": record.invalidated_at is not None,
    }


def rounds(record: RoundSamples) -> dict[str, Any]:
    """The samples of one round, in ms."""
    return {
        "kind": record.kind,
        "ttft_ms": list(record.ttft_ms),
        "gaps_ms": [list(gaps) for gaps in record.gaps_ms],
        "response_ms": list(record.response_ms),
        "dropped": record.dropped,
    }


def _named(counts: dict[TrialStatus, int]) -> dict[str, int]:
    return {str(status): count for status, count in counts.items()}


def _status(statuses: type[Status], name: str) -> Status:
    try:
        return statuses(name)
    except ValueError:
        allowed = ", ".join(statuses)
        raise RequestError(422, f"status '{name[:50]}': allowed are {allowed}", param="status") from None
