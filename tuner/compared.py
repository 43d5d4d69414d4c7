"""Comparisons that were measured, read back from the store as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from profiles.records import ComparisonRecord, PairRecord, StudyRecord
from profiles.store import Store
from profiles.vocabulary import Config
from tuner.errors import UsageError
from tuner.history import machine_named


def comparison_number(name: str) -> int | None:
    """The number of a comparison that is called `c-` and a number; None for another name.

    Raises UsageError for one that can't be read.
    """
    if not name.startswith("c-"):
        return None
    number = name.removeprefix("c-")
    if not (number.isascii() and number.isdecimal()):
        raise UsageError(
            f"'{name}' names no comparison: write c- and its number, as cputune history lists it"
        )
    return int(number)


def comparisons(
    store: Store,
    *,
    model: str | None = None,
    machine: str | None = None,
    workload: str | None = None,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """What `cputune compare` measured, the last first; filters as those of `tuner.history.searches`."""
    found = store.asked_comparisons(
        model_digest=None if model is None else store.model(model).info.digest,
        fingerprint=None if machine is None else machine_named(store, machine),
        workload_name=workload,
        limit=limit,
    )
    return _rows(store, found, store.pairs_of([one.id for one in found]))


def comparison(store: Store, number: int) -> dict[str, Any]:
    """One comparison, of a search or a user's own, with the values of its pairs.

    Raises NotFoundError for an unknown one.
    """
    found, pairs = store.comparison(number), store.pairs(number)
    (row,) = _rows(store, [found], {number: pairs})
    return {**row, "values": [[pair.a_values[0], pair.b_values[0]] for pair in _clean(pairs)]}


def _rows(
    store: Store, found: Sequence[ComparisonRecord], pairs: Mapping[int, Sequence[PairRecord]]
) -> list[dict[str, Any]]:
    studies = {study_id: store.study(study_id) for study_id in {one.study_id for one in found}}
    names = {record.info.digest: record.name for record in store.models()}
    labels = {record.fingerprint: record.label for record in store.machines()}
    return [_row(one, studies[one.study_id], _clean(pairs[one.id]), names, labels) for one in found]


def _row(
    one: ComparisonRecord,
    study: StudyRecord,
    clean: Sequence[PairRecord],
    names: Mapping[str, str],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "comparison": f"c-{one.id}",
        "study": study.id,
        "model": names.get(study.model_digest, study.model_digest[:12]),
        "machine": {"label": labels.get(study.fingerprint, ""), "fingerprint": study.fingerprint},
        "workload": study.workload.name,
        "metric": one.metric,
        "a": _side(one.config_a, [pair.a_values[0] for pair in clean]),
        "b": _side(one.config_b, [pair.b_values[0] for pair in clean]),
        "ratio": None if one.interval is None else asdict(one.interval),
        "verdict": one.verdict,
        "pairs": len(clean),
        "started_at": one.started_at.isoformat(timespec="seconds"),
        "finished_at": one.finished_at and one.finished_at.isoformat(timespec="seconds"),
    }


def _clean(pairs: Sequence[PairRecord]) -> list[PairRecord]:
    return [pair for pair in pairs if pair.dropped is None]


def _side(config: Config, values: Sequence[float]) -> Mapping[str, Any]:
    return {
        "engine": config.engine,
        "variant": config.variant,
        "config": config.as_dict(),
        "value": median(values) if values else None,
    }
