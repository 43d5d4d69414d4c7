"""The searches of a store over time: one row each, by question, and what changed from one to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.errors import NotFoundError
from profiles.metrics import flat_name
from profiles.records import PromotionRecord, StudyRecord, digest_of, workload_identity
from profiles.store import Store
from tuner.errors import UsageError

SHARE = 0.02
"""A metric that differs by less is not told as a change."""


@dataclass(frozen=True)
class Change:
    """Something that is not the same in a later search; None where one of the two has none."""

    what: str
    before: object
    after: object

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return dict(self.__dict__)


def searches(
    store: Store,
    *,
    model: str | None = None,
    machine: str | None = None,
    workload: str | None = None,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Rows of the searches that match every filter, the last changed first.

    `changes` is what is not as in the search before of the same question (machine, model, workload,
    objective, quality, limits), as far as that is among the rows. Raises NotFoundError for a model, a machine
    or a workload that nothing is known of.
    """
    studies = store.studies(
        model_digest=None if model is None else store.model(model).info.digest,
        fingerprint=None if machine is None else machine_named(store, machine),
        workload_name=workload,
        searches_only=True,
        limit=limit,
    )
    if not studies and workload is not None:
        known = sorted({study.workload.name for study in store.studies()})
        if workload not in known:
            raise NotFoundError(
                f"nothing of the workload '{workload}'", hint=f"known are: {', '.join(known) or 'none yet'}"
            )
    counts = store.trial_counts([study.id for study in studies])
    doubts = _doubts(store, studies)
    names = {record.info.digest: record.name for record in store.models()}
    labels = {record.fingerprint: record.label for record in store.machines()}
    rows = []
    earlier: dict[str, StudyRecord] = {}
    for study in reversed(studies):
        asked = question(study)
        before = earlier.get(asked)
        rows.append(
            {
                **_row(study, doubts),
                "model": names.get(study.model_digest, study.model_digest[:12]),
                "machine": {"label": labels.get(study.fingerprint, ""), "fingerprint": study.fingerprint},
                "trials": sum(counts[study.id].values()),
                "question": asked,
                "changes": [] if before is None else [one.to_json() for one in changes(before, study)],
            }
        )
        if value_of(study) is not None:
            earlier[asked] = study
    return rows[::-1]


def promotions(
    store: Store,
    *,
    model: str | None = None,
    machine: str | None = None,
    workload: str | None = None,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """What daemons promoted, refused and rolled back, the last first; filters as those of `searches`."""
    names = {record.info.digest: record.name for record in store.models()}
    records = store.promotions(
        model_digest=None if model is None else store.model(model).info.digest,
        fingerprint=None if machine is None else machine_named(store, machine),
        limit=limit if workload is None else None,
    )
    return [promotion_row(one, names) for one in records if workload in (None, one.workload.name)][:limit]


def promotion_row(record: PromotionRecord, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A daemon's decision as plain values; `names` are those of models by digest."""
    digest = record.model_digest
    return {
        "at": record.created_at.isoformat(timespec="seconds"),
        "action": str(record.action),
        "model": (names or {}).get(digest, digest[:12]),
        "workload": record.workload.name,
        "machine": record.fingerprint,
        "running": record.running_id,
        "other": record.other_id,
        "reason": record.reason,
        "numbers": dict(record.numbers),
    }


def machine_named(store: Store, wanted: str) -> str:
    """The fingerprint of a machine by its label, or by the beginning of the fingerprint."""
    machines = store.machines()
    labelled = [record.fingerprint for record in machines if record.label == wanted]
    found = labelled or [one.fingerprint for one in machines if one.fingerprint.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{record.label} ({record.fingerprint[:12]})" for record in machines)
    what = f"{len(found)} machines are" if found else "no machine is"
    raise NotFoundError(f"{what} called '{wanted}'", hint=f"known: {listed or 'none yet'}")


def question(study: StudyRecord) -> str:
    """Equal for searches whose answers can be compared."""
    return digest_of(
        study.fingerprint,
        study.model_digest,
        workload_identity(study.workload),
        [[objective.metric, objective.direction] for objective in study.objectives],
        study.quality_level,
        sorted(str(limit) for limit in study.limits),
    )[:12]


def _doubts(store: Store, studies: Iterable[StudyRecord]) -> dict[str, str]:
    """Why the studies' profiles can't be trusted, by their ids."""
    return store.doubts([best["profile_id"] for best in map(best_of, studies) if best.get("profile_id")])


def _row(study: StudyRecord, doubts: Mapping[str, str]) -> dict[str, Any]:
    profile_id = best_of(study).get("profile_id")
    return {
        "study": study.id,
        "name": study.name,
        "status": str(study.status),
        "workload": study.workload.name,
        "objective": study.objectives[0].metric,
        "direction": study.objectives[0].direction,
        "quality": study.quality_level,
        "limits": [str(limit) for limit in study.limits],
        "created_at": study.created_at.isoformat(timespec="seconds"),
        "updated_at": study.updated_at.isoformat(timespec="seconds"),
        "value": value_of(study),
        "speedup": study.result.get("speedup"),
        "profile_id": profile_id,
        "invalidated": doubts.get(profile_id) if profile_id else None,
        "engine_builds": dict(study.engine_builds),
        "kernel": study.environment.get("kernel"),
    }


def best_of(study: StudyRecord) -> Mapping[str, Any]:
    """The best of the answer that a study's last search ended with; empty where it has none."""
    best = study.result.get("best")
    return best if isinstance(best, Mapping) else {}


def value_of(study: StudyRecord) -> float | None:
    """The objective of that best; None where there is none."""
    value = best_of(study).get("metrics", {}).get(flat_name(study.objectives[0].metric))
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


# --- what changed --------------------------------------------------------------------------------


def difference(store: Store, a: str, b: str) -> dict[str, Any]:
    """Two studies by id, name or profile: their rows, and all that is not the same in the second.

    Raises NotFoundError for an unknown one, UsageError for a profile that came without its study.
    """
    first, second = study_named(store, a), study_named(store, b)
    doubts = _doubts(store, (first, second))
    return {
        "a": _row(first, doubts),
        "b": _row(second, doubts),
        "same_question": question(first) == question(second),
        "changes": [one.to_json() for one in changes(first, second, share=0.0)],
    }


def study_named(store: Store, wanted: str) -> StudyRecord:
    """A study by its id, its name, or a profile that it published.

    Raises NotFoundError for an unknown one, UsageError for a profile that came without its study.
    """
    if not wanted.startswith("p-"):
        return store.study(wanted)
    profile = store.profile(wanted)
    if profile.study_id is None:
        raise UsageError(f"{profile.id} came from another store without its study: name a study")
    return store.study(profile.study_id)


def changes(a: StudyRecord, b: StudyRecord, share: float = SHARE) -> list[Change]:
    """What is not the same in the later search: what was asked, machine, builds, settings, numbers."""
    return [
        *_changed(_asked(a), _asked(b)),
        *_changed(_around(a), _around(b)),
        *_changed(_chosen(a), _chosen(b)),
        *(change for change in _changed(_numbers(a), _numbers(b)) if _matters(change, share)),
    ]


def _changed(a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[Change]:
    for what in dict.fromkeys((*a, *b)):
        if a.get(what) != b.get(what):
            yield Change(what, a.get(what), b.get(what))


def _asked(study: StudyRecord) -> dict[str, object]:
    return {
        "machine": study.fingerprint,
        "model": study.model_digest,
        "workload": study.workload.name,
        **workload_identity(study.workload),
        "objective": study.objectives[0].metric,
        "quality": study.quality_level,
        "limits": [str(limit) for limit in study.limits],
        "engines": list(study.engines),
    }


def _around(study: StudyRecord) -> dict[str, object]:
    builds = {f"build of {name}": build for name, build in study.engine_builds.items()}
    return {**builds, **study.environment, "conditions": study.result.get("conditions")}


def _chosen(study: StudyRecord) -> dict[str, object]:
    best = best_of(study)
    return {"engine": best.get("engine"), "variant": best.get("variant"), **best.get("config", {})}


def _numbers(study: StudyRecord) -> dict[str, object]:
    return {"status": str(study.status), **best_of(study).get("metrics", {})}


def _matters(change: Change, share: float) -> bool:
    before, after = change.before, change.after
    if isinstance(before, int | float) and isinstance(after, int | float):
        return abs(after - before) > share * abs(before)
    return share == 0.0


# --- trends --------------------------------------------------------------------------------------


def questions(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The rows by question, in their order."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["question"], []).append(row)
    return found


def levels(values: Iterable[float], count: int) -> list[int]:
    """Each value as a step from 0 (the smallest) to `count` - 1; all 0 where they are one."""
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    span = high - low
    return [0 if span == 0 else round((value - low) / span * (count - 1)) for value in numbers]
