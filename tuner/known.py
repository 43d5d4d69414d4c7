"""The answer to a question that was asked before, where nothing has changed under it since."""

from __future__ import annotations

from typing import Any

from profiles import select
from profiles.records import ProfileRecord, ProfileStatus
from tuner.events import Event
from tuner.request import SearchRequest
from tuner.search.space import Space
from tuner.workshop import Workshop


def known_answer(shop: Workshop, space: Space, request: SearchRequest) -> dict[str, Any] | None:
    """The document of a published answer that nothing has changed under since; None where there is none.

    Another engine build or kernel is drift: then the answer is stale. So is one from another space, which
    more variants or fewer cores make.
    """
    if request.command is not None:
        kept = _kept_command(shop, space, request)
        if kept is not None:
            return kept
    current = [record for record in _answers(shop, request) if _is_current(shop, space, record)]
    record = select.best(current, engines=tuple(shop.available))
    document = record.facts.get("document") if record else None
    if record is None or not isinstance(document, dict):
        for doubted in (profile for profile in current if profile.invalidated is not None):
            shop.observer(Event("note", f"{doubted.id} {doubted.invalidated}: measuring anew"))
        return None
    return {**document, "best": {**document["best"], "profile_id": record.id}, "measured_now": False}


def _kept_command(shop: Workshop, space: Space, request: SearchRequest) -> dict[str, Any] | None:
    """The last answer to this question where it was to keep the command, for which nothing is published."""
    asked = {
        "status": str(ProfileStatus.NO_GAIN),
        "workload": shop.workload.to_json(),
        "objectives": [objective.metric for objective in request.objectives],
        "quality": request.quality.name,
        "limits": [str(limit) for limit in request.limits],
        "default_failure": None,
    }
    for study in shop.store.studies(fingerprint=shop.machine.fingerprint, model_digest=shop.model.digest):
        if study.space_hash != space.digest or not study.result:
            continue
        builds = {name: shop.build(name) for name in shop.available}
        same = (study.engine_builds, study.environment.get("kernel")) == (builds, shop.machine.kernel)
        same = same and study.request.get("load") == request.to_json()["load"]
        if not same or any(study.result.get(key) != value for key, value in asked.items()):
            return None
        best = study.result["best"]
        assert isinstance(best, dict)
        return {**study.result, "best": {**best, "profile_id": None}, "measured_now": False}
    return None


def _answers(shop: Workshop, request: SearchRequest) -> list[ProfileRecord]:
    """What was published for exactly this question."""
    limits = {str(limit) for limit in request.limits}
    every = shop.store.profiles(
        fingerprint=shop.machine.fingerprint, model_digest=shop.model.digest, workload=shop.workload
    )
    return [
        record
        for record in every
        if record.objectives == request.objectives
        and record.quality_level == request.quality.name
        and {str(limit) for limit in record.limits} == limits
        and _busy_share(record) == request.busy_share
    ]


def _busy_share(record: ProfileRecord) -> float:
    document = record.facts.get("document")
    load = document.get("load") if isinstance(document, dict) else None
    return float(load.get("busy_share", 0.0)) if isinstance(load, dict) else 0.0


def _is_current(shop: Workshop, space: Space, record: ProfileRecord) -> bool:
    return (
        record.study_id is not None
        and record.config.engine in shop.available
        and record.engine_build == shop.build(record.config.engine)
        and record.kernel == (shop.machine.kernel or "")
        and shop.store.study(record.study_id).space_hash == space.digest
    )
