"""Verbs on studies: open or resume, list, find, end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlmodel import Session, col, func, or_, select

from profiles.records import CHECK_SPACE, COMPARISON_SPACE, StudyRecord, StudySpec, StudyStatus
from profiles.store.owner import is_alive
from profiles.store.verbs import (
    Verbs,
    ambiguous,
    documents,
    existing,
    has_status,
    limits_of,
    moment,
    new_id,
    not_found,
    now,
    objectives_of,
    workload_key,
)
from profiles.tables import MachineRow, ModelRow, StudyRow, TrialRow
from profiles.vocabulary import TrialStatus, Workload


class Studies(Verbs):
    """What was searched."""

    def open_study(self, spec: StudySpec, owner: str, *, fresh: bool = False) -> StudyRecord:
        """Resume the newest study of this identity, or make a new one; `fresh` always makes a new one.

        What was asked this time replaces what was asked before; the owner is the caller's token. Trials
        of the study still running whose process is gone become interrupted (S02).
        Raises NotFoundError when machine or model is not stored.
        """
        with self._database.writing() as session:
            existing(session, MachineRow, spec.fingerprint, "machine")
            existing(session, ModelRow, spec.model_digest, "model")
            newest = session.exec(
                select(StudyRow).where(StudyRow.key == spec.key).order_by(col(StudyRow.attempt).desc())
            ).first()
            if newest is None or fresh:
                row = _new_study(session, spec, newest.attempt + 1 if newest else 1)
            else:
                row = newest
                _interrupt_orphans(session, row.id)
            row.objectives, row.limits = documents(spec.objectives), documents(spec.limits)
            row.name, row.quality_level = spec.name, spec.quality_level
            row.seed, row.sampler = spec.seed, spec.sampler
            row.request, row.environment = dict(spec.request), dict(spec.environment)
            row.engine_builds = dict(spec.engine_builds)
            row.status, row.owner, row.updated_at = StudyStatus.RUNNING, owner, now()
            session.add(row)
            return study_record(row)

    def finish_study(
        self, study_id: str, status: StudyStatus, result: Mapping[str, object] | None = None
    ) -> StudyRecord:
        """Say how a study's search ended; `result` is the document it printed, kept if None."""
        with self._database.writing() as session:
            row = existing(session, StudyRow, study_id, "study")
            row.status, row.updated_at = status, now()
            if result is not None:
                row.result = dict(result)
            session.add(row)
            return study_record(row)

    def study(self, wanted: str) -> StudyRecord:
        """A study by id, by name (the newest of that name), or by an unambiguous beginning of either.

        Raises NotFoundError, listing near ones.
        """
        with self._database.reading() as session:
            return study_record(find_study(session, wanted))

    def studies(
        self,
        *,
        fingerprint: str | None = None,
        model_digest: str | None = None,
        workload: Workload | None = None,
        workload_name: str | None = None,
        status: StudyStatus | None = None,
        searches_only: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> tuple[StudyRecord, ...]:
        """Studies that match every filter given, the last changed first; with `searches_only` none that
        holds comparisons alone."""
        query = select(StudyRow).order_by(col(StudyRow.updated_at).desc()).limit(limit).offset(offset)
        if fingerprint is not None:
            query = query.where(StudyRow.fingerprint == fingerprint)
        if model_digest is not None:
            query = query.where(StudyRow.model_digest == model_digest)
        if workload is not None:
            query = query.where(StudyRow.workload_key == workload_key(workload))
        if workload_name is not None:
            query = query.where(col(StudyRow.workload)["name"].as_string() == workload_name)
        if searches_only:
            query = query.where(col(StudyRow.space_hash).not_in((COMPARISON_SPACE, CHECK_SPACE)))
        with self._database.reading() as session:
            if status is not None:
                query = query.where(has_status(session, StudyRow, (status,)))
            return tuple(study_record(row) for row in session.exec(query))

    def trial_counts(self, study_ids: Sequence[str]) -> dict[str, dict[TrialStatus, int]]:
        """Trials by status for each of some studies; a running one whose process is gone is interrupted."""
        counts: dict[str, dict[TrialStatus, int]] = {study_id: {} for study_id in study_ids}
        with self._database.reading() as session:
            grouped = session.exec(
                select(TrialRow.study_id, TrialRow.status, func.count())
                .where(col(TrialRow.study_id).in_(study_ids), TrialRow.status != TrialStatus.RUNNING)
                .group_by(col(TrialRow.study_id), col(TrialRow.status))
            )
            for study_id, status, count in grouped:
                counts[study_id][TrialStatus(status)] = count
            running = session.exec(
                select(TrialRow.study_id, TrialRow.owner).where(
                    col(TrialRow.study_id).in_(study_ids), TrialRow.status == TrialStatus.RUNNING
                )
            )
            for study_id, owner in running:
                status = TrialStatus.RUNNING if is_alive(owner) else TrialStatus.INTERRUPTED
                counts[study_id][status] = counts[study_id].get(status, 0) + 1
        return counts


def _new_study(session: Session, spec: StudySpec, attempt: int) -> StudyRow:
    study_id = new_id(session, StudyRow, "s")
    taken = session.exec(select(StudyRow.id).where(StudyRow.storage_name == spec.storage_name)).first()
    return StudyRow(
        id=study_id,
        key=spec.key,
        attempt=attempt,
        name=spec.name,
        fingerprint=spec.fingerprint,
        model_digest=spec.model_digest,
        workload=spec.workload.to_json(),
        workload_key=workload_key(spec.workload),
        engines=list(spec.engines),
        space_hash=spec.space_hash,
        storage_name=spec.storage_name if taken is None else f"{spec.storage_name}-{study_id}",
        objectives=[],
        quality_level=spec.quality_level,
        limits=[],
        seed=spec.seed,
        sampler=spec.sampler,
        request={},
        environment={},
        engine_builds={},
        status=StudyStatus.RUNNING,
        owner="",
        result={},
        created_at=now(),
        updated_at=now(),
    )


def _interrupt_orphans(session: Session, study_id: str) -> None:
    running = session.exec(
        select(TrialRow).where(TrialRow.study_id == study_id, TrialRow.status == TrialStatus.RUNNING)
    )
    for trial in running:
        if not is_alive(trial.owner):
            trial.status, trial.reason = TrialStatus.INTERRUPTED, "its search ended before it did"
            trial.finished_at = now()
            session.add(trial)


def find_study(session: Session, wanted: str) -> StudyRow:
    """The row of a study by id, name or an unambiguous beginning; NotFoundError lists near ones."""
    newest_first = col(StudyRow.updated_at).desc()
    exact = (
        session.get(StudyRow, wanted)
        or session.exec(select(StudyRow).where(StudyRow.name == wanted).order_by(newest_first)).first()
    )
    if exact is not None:
        return exact
    rows = session.exec(
        select(StudyRow).where(
            or_(
                col(StudyRow.id).startswith(wanted, autoescape=True),
                col(StudyRow.name).startswith(wanted, autoescape=True),
            )
        )
    ).all()
    if wanted and len(rows) == 1:
        return rows[0]
    if wanted and rows:
        raise ambiguous(wanted, [f"{row.id} ({row.name})" for row in rows])
    known = session.exec(select(StudyRow.id, StudyRow.name).order_by(newest_first).limit(200)).all()
    names = [name for pair in known for name in pair]
    raise not_found("study", wanted, names, "cputune history")


def study_record(row: StudyRow) -> StudyRecord:
    """A row as a value; a running study whose process is gone reads as interrupted."""
    status = StudyStatus(row.status)
    if status is StudyStatus.RUNNING and not is_alive(row.owner):
        status = StudyStatus.INTERRUPTED
    return StudyRecord(
        id=row.id,
        lineage=row.key,
        name=row.name,
        fingerprint=row.fingerprint,
        model_digest=row.model_digest,
        workload=Workload(**row.workload),
        engines=tuple(row.engines),
        space_hash=row.space_hash,
        storage_name=row.storage_name,
        objectives=objectives_of(row),
        quality_level=row.quality_level,
        limits=limits_of(row),
        seed=row.seed,
        sampler=row.sampler,
        request=row.request,
        environment=row.environment,
        engine_builds=row.engine_builds,
        status=status,
        owner=row.owner,
        result=row.result,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
    )
