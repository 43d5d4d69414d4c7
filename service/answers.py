"""Answers about published profiles, kept as long as nothing in the store has changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profiles.documents import dumps, profile_document
from profiles.records import ModelRecord, ProfileRecord, StudyRecord, StudyStatus
from profiles.vocabulary import QualityLevel, Workload
from service.problems import RequestError
from tuner.events import ignore
from tuner.export import FORMATS
from tuner.export import export as write
from tuner.handout import launch_of
from tuner.narrowing import check_names
from tuner.request import SearchRequest, quality_named, with_lengths, with_objective, workload_named
from tuner.search.objectives import objective_of

if TYPE_CHECKING:
    from profiles.store import Store
    from service.state import ServiceState

_KEPT = 256


@dataclass(frozen=True)
class StoredAnswer:
    """A body with its tag; `state` is what the store looked like when it was made."""

    body: bytes
    media_type: str
    etag: str
    state: object


class Answers:
    """Remembers answers by question. A store that is no SQLite file is asked every time."""

    def __init__(self, store: Store) -> None:
        self._files = () if store.path is None else (store.path, Path(f"{store.path}-wal"))
        self._kept: OrderedDict[object, StoredAnswer] = OrderedDict()
        self._making: dict[object, asyncio.Task[StoredAnswer]] = {}

    async def get(self, question: object, make: Callable[[], tuple[bytes, str]]) -> StoredAnswer:
        """The answer to a question, made in a thread where it is not known or may have changed.

        Equal questions that come meanwhile wait for the same one.
        """
        state = self.state()
        known = self._kept.get(question)
        if known is not None and state is not None and known.state == state:
            return known
        making = self._making.get((question, state))
        if making is None:
            making = self._making[question, state] = asyncio.create_task(self._make(question, state, make))
            making.add_done_callback(lambda _: self._making.pop((question, state)))
        return await asyncio.shield(making)

    async def _make(
        self, question: object, state: object, make: Callable[[], tuple[bytes, str]]
    ) -> StoredAnswer:
        body, media_type = await asyncio.to_thread(make)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        made = self._kept[question] = StoredAnswer(body, media_type, etag, state)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return made

    def state(self) -> object:
        """Changes with every commit, as SQLite's log or file does; None where that is not seen."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._files:
            try:
                seen = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        return tuple(found) or None


def best_answer(
    service: ServiceState,
    model: str | None,
    workload: str,
    objective: str | None,
    quality: str,
    streams: int | None,
    style: str,
) -> tuple[bytes, str]:
    """The best profile for this machine, as body and media type.

    Raises UsageError for an unknown name, RequestError 404 with the reasons and the next command.
    """
    check_format(style)
    asked = with_objective(with_lengths(workload_named(workload), streams=streams), objective)
    level = quality_named(quality)
    found = model_asked(service, model)
    profile = service.store.best_profile(
        service.machine.fingerprint, found.info.digest, asked, (objective_of(asked),), level.name
    )
    if profile is None:
        raise _missing(service, found, asked, level)
    return written(service, profile, style)


def check_format(style: str) -> None:
    """UsageError for a format that a profile can't be written in."""
    check_names("format", (style,), ("json", *(name for name in FORMATS if name != "json")))


def written(service: ServiceState, profile: ProfileRecord, style: str) -> tuple[bytes, str]:
    """A profile as body and media type: the document itself, or what another program takes.

    Makes nothing, beside streams: raises NotFoundError where the variant's file is not there.
    """
    if style == "json":
        return json.dumps(profile_document(profile)).encode(), "application/json"
    if style == "yaml":
        return dumps(profile_document(profile), "yaml").encode(), "text/yaml"
    launch = launch_of(profile.id, service.home, ignore, storage=service.settings.storage, makes=False)
    return write(launch, style).encode(), "text/plain"


def _missing(
    service: ServiceState, model: ModelRecord, workload: Workload, level: QualityLevel
) -> RequestError:
    """Why there is no profile, what there is instead, and the command that makes one."""
    near = service.store.profiles(fingerprint=service.machine.fingerprint, model_digest=model.info.digest)
    others = sorted({f"{record.workload.name} at {record.quality_level}" for record in near})
    elsewhere = len({record.fingerprint for record in service.store.profiles(model_digest=model.info.digest)})
    reasons = [f"nothing is published for {model.name}, {workload.name}, {level.name} on this machine"]
    if others:
        reasons.append(f"there is {', '.join(others)}")
    elif elsewhere:
        reasons.append(f"there are profiles of {elsewhere} other machines: POST /v1/recommendations")
    failed = _without_answer(service, model, workload)
    if failed is not None:
        counts = service.store.trial_counts([failed.id])[failed.id]
        told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        reasons.append(f"search {failed.id} found nothing feasible: {told or 'no trial'}")
    options = SearchRequest(model.name, workload, level).options()
    command = " ".join(("cputune search", *options))
    return RequestError(404, f"{'; '.join(reasons)}; run: {command}", "not_found_error", code="no_profile")


def _without_answer(service: ServiceState, model: ModelRecord, workload: Workload) -> StudyRecord | None:
    """The last search on this machine for this model and workload that came to nothing."""
    studies = service.store.studies(
        fingerprint=service.machine.fingerprint,
        model_digest=model.info.digest,
        workload=workload,
        searches_only=True,
    )
    return next((study for study in studies if study.status is StudyStatus.INFEASIBLE), None)


def model_asked(service: ServiceState, name: str | None) -> ModelRecord:
    """A registered model: the named one, the generator's, or the only one.

    Raises NotFoundError for an unknown name, RequestError where it is not clear which.
    """
    if name is None and service.generator is not None:
        name = service.generator.serving.model
    models = service.store.models()
    if name is not None:
        return service.store.model(name)
    if len(models) == 1:
        return models[0]
    known = ", ".join(record.name for record in models)
    reason = f"several are registered ({known}): name one with model=" if models else "none is registered"
    raise RequestError(404, f"which model? {reason}", "not_found_error", "model")
