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

from profiles.documents import profile_document
from profiles.records import ModelRecord
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
_MEDIA_TYPES = {"json": "application/json", "yaml": "text/yaml"}


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

    async def get(self, question: object, make: Callable[[], tuple[bytes, str]]) -> StoredAnswer:
        """The answer to a question, made in a thread where it is not known or may have changed."""
        state = self._state()
        known = self._kept.get(question)
        if known is not None and state is not None and known.state == state:
            return known
        body, media_type = await asyncio.to_thread(make)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        made = self._kept[question] = StoredAnswer(body, media_type, etag, state)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return made

    def _state(self) -> object:
        """Changes with every commit: SQLite's log grows or its file is written."""
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
    check_names("format", (style,), ("json", *(name for name in FORMATS if name != "json")))
    asked = with_objective(with_lengths(workload_named(workload), streams=streams), objective)
    level = quality_named(quality)
    found = _model(service, model)
    profile = service.store.best_profile(
        service.machine.fingerprint, found.info.digest, asked, (objective_of(asked),), level.name
    )
    if profile is None:
        raise _missing(service, found, asked, level)
    media_type = _MEDIA_TYPES.get(style, "text/plain; charset=utf-8")
    if style == "json":
        return json.dumps(profile_document(profile)).encode(), media_type
    return write(launch_of(profile.id, service.home, ignore), style).encode(), media_type


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
    options = SearchRequest(model.name, workload, level).options()
    command = " ".join(("cputune search", *options))
    return RequestError(404, f"{'; '.join(reasons)}; run: {command}", "not_found_error", code="no_profile")


def _model(service: ServiceState, name: str | None) -> ModelRecord:
    """A registered model: the named one, the generator's, or the only one."""
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
