"""Takes in a study of another store: new, further than here, or gone on in both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlmodel import Session, col, func, select

from profiles import bundle
from profiles.errors import DocumentError
from profiles.store.taken import Taken
from profiles.store.verbs import batches, documents, existing, stored, workload_key
from profiles.tables import (
    ComparisonRow,
    Document,
    MachineRow,
    MeasurementRow,
    ModelRow,
    PairRow,
    StudyRow,
    TrialRow,
)
from profiles.vocabulary import TrialStatus

_OPEN = frozenset({TrialStatus.RUNNING, TrialStatus.INTERRUPTED})


def take_in_study(session: Session, document: bundle.StudyDocument, place: str) -> Taken:
    """Store a study that is new, or bring one that is behind up to it; refuse one that went on in both."""
    existing(session, MachineRow, document.machine, "machine")
    existing(session, ModelRow, document.model, "model")
    keys = [trial.measurement_key for trial in document.trials if trial.measurement_key is not None]
    missing = set(keys) - known_measurements(session, keys)
    for index, trial in enumerate(document.trials):
        if trial.measurement_key in missing:
            raise DocumentError(
                f"{place}: trials.{index}.measurement_key: no such measurement", seen=trial.measurement_key
            )
    row = session.get(StudyRow, document.id)
    if row is None:
        return _new_study(session, document)
    if (row.key, row.created_at) != (document.key, stored(document.created_at)):
        return Taken("study", document.id, "refused", "another study has this id here")
    here = {
        trial.number: trial for trial in session.exec(select(TrialRow).where(TrialRow.study_id == row.id))
    }
    parted = [
        trial.number
        for trial in document.trials
        if trial.number in here and here[trial.number].started_at != stored(trial.started_at)
    ]
    if parted:
        note = f"it went on in both stores: trial {parted[0]} is not the same"
        return Taken("study", document.id, "refused", note)
    changed = _add_trials(session, document, here)
    changed |= _add_comparisons(session, document)
    if stored(document.updated_at) > row.updated_at:
        _renew(row, document)
        session.add(row)
        changed = True
    return Taken("study", document.id, "extended" if changed else "known")


def _new_study(session: Session, document: bundle.StudyDocument) -> Taken:
    attempts = session.exec(select(StudyRow.attempt).where(StudyRow.key == document.key)).all()
    attempt = document.attempt if document.attempt not in attempts else max(attempts) + 1
    named = session.exec(select(StudyRow.id).where(StudyRow.storage_name == document.storage_name)).first()
    row = StudyRow(
        id=document.id,
        key=document.key,
        attempt=attempt,
        name=document.name,
        fingerprint=document.machine,
        model_digest=document.model,
        workload=document.workload.to_json(),
        workload_key=workload_key(document.workload),
        engines=list(document.engines),
        space_hash=document.space_hash,
        storage_name=document.storage_name if named is None else f"{document.storage_name}-{document.id}",
        objectives=[],
        quality_level=document.quality_level,
        limits=[],
        seed=document.seed,
        sampler=document.sampler,
        request={},
        environment={},
        engine_builds={},
        status=document.status,
        owner=document.owner,
        result={},
        created_at=stored(document.created_at),
        updated_at="",
    )
    _renew(row, document)
    session.add(row)
    session.flush()
    _add_trials(session, document, {})
    _add_comparisons(session, document)
    return Taken("study", document.id, "added")


def _renew(row: StudyRow, document: bundle.StudyDocument) -> None:
    """What a later run of the study changed."""
    row.name, row.quality_level = document.name, document.quality_level
    row.objectives, row.limits = documents(document.objectives), documents(document.limits)
    row.seed, row.sampler = document.seed, document.sampler
    row.request, row.environment = document.request, document.environment
    row.engine_builds, row.result = document.engine_builds, document.result
    row.status, row.owner, row.updated_at = document.status, document.owner, stored(document.updated_at)


def _add_trials(session: Session, document: bundle.StudyDocument, here: Mapping[int, TrialRow]) -> bool:
    """Add what is missing, end what had not ended here, and take over doubts; whether anything changed."""
    changed = False
    for trial in document.trials:
        row = here.get(trial.number)
        if row is None:
            row = TrialRow(study_id=document.id, **_trial_fields(trial))
        elif TrialStatus(row.status) in _OPEN and trial.status not in _OPEN:
            row.sqlmodel_update(_trial_fields(trial))
        elif row.invalidated_at is None and trial.invalidated_at is not None:
            row.status, row.reason = trial.status, trial.reason
            row.invalidated_at = stored(trial.invalidated_at)
        else:
            continue
        session.add(row)
        changed = True
    session.flush()
    return changed


def _trial_fields(trial: bundle.TrialDocument) -> Document:
    config = trial.config.value()
    return {
        **trial.model_dump(exclude={"config", "started_at", "finished_at", "invalidated_at"}),
        "config": config.to_json(),
        "config_key": config.key,
        "started_at": stored(trial.started_at),
        "finished_at": None if trial.finished_at is None else stored(trial.finished_at),
        "invalidated_at": None if trial.invalidated_at is None else stored(trial.invalidated_at),
    }


def _add_comparisons(session: Session, document: bundle.StudyDocument) -> bool:
    """Add missing comparisons and pairs, and end those that had not ended here."""
    changed = False
    for comparison in document.comparisons:
        row = _comparison(session, document.id, comparison)
        if row is None:
            row = ComparisonRow(
                study_id=document.id,
                config_a=comparison.config_a.value().to_json(),
                config_b=comparison.config_b.value().to_json(),
                metric=comparison.metric,
                interval=None,
                verdict=None,
                started_at=stored(comparison.started_at),
                finished_at=None,
            )
            session.add(row)
            session.flush()
            changed = True
        if row.finished_at is None and comparison.finished_at is not None:
            interval = comparison.interval
            row.interval = None if interval is None else dict(interval.__dict__)
            row.verdict, row.finished_at = comparison.verdict, stored(comparison.finished_at)
            session.add(row)
            changed = True
        assert row.id is not None
        count = session.exec(select(func.count()).where(PairRow.comparison_id == row.id)).one()
        for pair in comparison.pairs[count:]:
            fields = pair.model_dump(mode="json", exclude={"created_at"})
            session.add(PairRow(comparison_id=row.id, created_at=stored(pair.created_at), **fields))
            changed = True
    session.flush()
    return changed


def _comparison(
    session: Session, study_id: str, comparison: bundle.ComparisonDocument
) -> ComparisonRow | None:
    query = select(ComparisonRow).where(
        ComparisonRow.study_id == study_id, ComparisonRow.started_at == stored(comparison.started_at)
    )
    return session.exec(query).first()


def known_measurements(session: Session, keys: Iterable[str]) -> set[str]:
    """Those of the keys that have a measurement."""
    return {
        key
        for batch in batches(keys)
        for key in session.exec(select(MeasurementRow.key).where(col(MeasurementRow.key).in_(batch)))
    }
