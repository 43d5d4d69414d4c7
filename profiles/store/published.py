"""Verbs on published profiles: publish, find, list, answer with the best."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from sqlmodel import Session, col, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from profiles import select as choose
from profiles.records import Conditions, Profile, ProfileRecord, ProfileStatus
from profiles.store.verbs import (
    Verbs,
    ambiguous,
    documents,
    existing,
    finite,
    interval_document,
    interval_of,
    limits_of,
    moment,
    new_id,
    not_found,
    now,
    objectives_of,
    quality_document,
    quality_of,
    request_key,
    workload_key,
)
from profiles.tables import MachineRow, ModelRow, ProfileRow, ProfileTrialRow, StudyRow, TrialRow
from profiles.vocabulary import Config, Limit, Objective, Workload


class Published(Verbs):
    """What is recommended."""

    def publish(self, profile: Profile) -> ProfileRecord:
        """Publish a profile under a new id.

        Raises NotFoundError when its machine, model, study or one of its trials is not stored.
        """
        with self._database.writing() as session:
            existing(session, MachineRow, profile.fingerprint, "machine")
            existing(session, ModelRow, profile.model_digest, "model")
            profile_id = new_id(session, ProfileRow, "p")
            lineage = profile_id
            if profile.study_id is not None:
                lineage = existing(session, StudyRow, profile.study_id, "study").key
            row = profile_row(profile, profile_id, lineage)
            session.add(row)
            for trial_id in sorted(set(profile.trial_ids)):
                existing(session, TrialRow, trial_id, "trial")
                session.add(ProfileTrialRow(profile_id=profile_id, trial_id=trial_id))
            session.flush()
            return profile_records(session, [row])[0]

    def profile(self, wanted: str) -> ProfileRecord:
        """A profile by its id or an unambiguous beginning of it; NotFoundError lists near ones."""
        with self._database.reading() as session:
            return profile_records(session, [find_profile(session, wanted)])[0]

    def profiles(
        self,
        *,
        fingerprint: str | None = None,
        model_digest: str | None = None,
        workload: Workload | None = None,
        workload_name: str | None = None,
        study_id: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> tuple[ProfileRecord, ...]:
        """Profiles that match every filter given, newest first, those on invalidated trials included."""
        query = select(ProfileRow).order_by(col(ProfileRow.created_at).desc()).limit(limit).offset(offset)
        if fingerprint is not None:
            query = query.where(ProfileRow.fingerprint == fingerprint)
        if model_digest is not None:
            query = query.where(ProfileRow.model_digest == model_digest)
        if workload is not None:
            query = query.where(ProfileRow.workload_key == workload_key(workload))
        if workload_name is not None:
            query = query.where(col(ProfileRow.workload)["name"].as_string() == workload_name)
        if study_id is not None:
            query = query.where(ProfileRow.study_id == study_id)
        return self._read(query)

    def best_profile(
        self,
        fingerprint: str,
        model_digest: str,
        workload: Workload,
        objectives: Sequence[Objective],
        quality_level: str,
        limits: Sequence[Limit] = (),
        *,
        prefer: Conditions = "quiet",
        engines: Collection[str] | None = None,
    ) -> ProfileRecord | None:
        """The best answer to exactly this question, as `profiles.select.best` chooses; None when none is.

        `engines` keeps out the profiles of other engines.
        """
        query = select(ProfileRow).where(
            ProfileRow.fingerprint == fingerprint,
            ProfileRow.model_digest == model_digest,
            ProfileRow.workload_key == workload_key(workload),
            ProfileRow.request_key == request_key(objectives, quality_level, limits),
        )
        return choose.best(self._read(query), prefer=prefer, engines=engines)

    def doubts(self, profile_ids: Sequence[str]) -> dict[str, str]:
        """Why profiles can't be trusted, by their ids; those that can, and unknown ones, are left out."""
        came_with = col(ProfileRow.facts)["origin_invalidated"].as_string()
        query = select(ProfileRow.id, came_with).where(
            col(ProfileRow.id).in_(profile_ids), came_with.is_not(None)
        )
        with self._database.reading() as session:
            return dict(session.exec(query).all()) | _invalidated(session, profile_ids)

    def _read(self, query: SelectOfScalar[ProfileRow]) -> tuple[ProfileRecord, ...]:
        with self._database.reading() as session:
            return profile_records(session, session.exec(query).all())


def find_profile(session: Session, wanted: str) -> ProfileRow:
    """The row of a profile by its id or an unambiguous beginning; NotFoundError lists near ones."""
    rows = session.exec(
        select(ProfileRow).where(col(ProfileRow.id).startswith(wanted, autoescape=True))
    ).all()
    if wanted and len(rows) == 1:
        return rows[0]
    if wanted and rows:
        raise ambiguous(wanted, [row.id for row in rows])
    newest_first = col(ProfileRow.created_at).desc()
    known = session.exec(select(ProfileRow.id).order_by(newest_first).limit(200)).all()
    raise not_found("profile", wanted, known, "cputune history")


def profile_row(profile: Profile, profile_id: str, lineage: str) -> ProfileRow:
    """A profile as a new row."""
    return ProfileRow(
        id=profile_id,
        lineage=lineage,
        fingerprint=profile.fingerprint,
        model_digest=profile.model_digest,
        workload=profile.workload.to_json(),
        workload_key=workload_key(profile.workload),
        objectives=documents(profile.objectives),
        quality_level=profile.quality_level,
        limits=documents(profile.limits),
        request_key=request_key(profile.objectives, profile.quality_level, profile.limits),
        status=profile.status,
        conditions=profile.conditions,
        config=profile.config.to_json(),
        variant_digest=profile.variant_digest,
        bits_per_weight=profile.bits_per_weight,
        metrics=finite(profile.metrics),
        baseline_config=profile.baseline_config.to_json(),
        baseline_metrics=finite(profile.baseline_metrics),
        speedup=interval_document(profile.speedup),
        quality=None if profile.quality is None else quality_document(profile.quality),
        engine_build=profile.engine_build,
        kernel=profile.kernel,
        study_id=profile.study_id,
        comparison_id=profile.comparison_id,
        facts=dict(profile.facts),
        created_at=now(),
    )


def profile_records(session: Session, rows: Sequence[ProfileRow]) -> tuple[ProfileRecord, ...]:
    """Rows as values, with their trials and what makes them doubtful."""
    ids = [row.id for row in rows]
    trials: dict[str, list[int]] = {profile_id: [] for profile_id in ids}
    for link in session.exec(select(ProfileTrialRow).where(col(ProfileTrialRow.profile_id).in_(ids))):
        trials[link.profile_id].append(link.trial_id)
    invalidated = _invalidated(session, ids)
    # One whose trials stayed in another store keeps the doubt that it came with.
    doubts = {row.id: invalidated.get(row.id) or row.facts.get("origin_invalidated") for row in rows}
    return tuple(_record(row, tuple(sorted(trials[row.id])), doubts[row.id]) for row in rows)


def _invalidated(session: Session, profile_ids: Sequence[str]) -> dict[str, str]:
    """Why profiles can't be trusted: trials under them, or such whose samples these shared, were wrong."""
    from sqlalchemy.orm import aliased

    wrong = aliased(TrialRow)
    query = (
        select(ProfileRow.id, wrong.id, wrong.reason)
        .join(ProfileTrialRow, col(ProfileTrialRow.profile_id) == ProfileRow.id)
        .join(TrialRow, col(TrialRow.id) == ProfileTrialRow.trial_id)
        .join(
            wrong,
            or_(col(wrong.id) == TrialRow.id, col(wrong.measurement_key) == TrialRow.measurement_key),
        )
        .where(
            col(ProfileRow.id).in_(profile_ids),
            col(wrong.invalidated_at).is_not(None),
            # A trial that came later lent its samples to nothing published before, and what was declared
            # wrong by then was not read.
            col(wrong.started_at) <= ProfileRow.created_at,
            or_(col(wrong.id) == TrialRow.id, col(wrong.invalidated_at) > ProfileRow.created_at),
        )
        .order_by(col(wrong.id))
    )
    told: dict[str, dict[str, None]] = {}
    for profile_id, trial_id, reason in session.exec(query):
        told.setdefault(profile_id, {})[f"trial {trial_id}, declared wrong: {reason}"] = None
    return {profile_id: f"rests on {'; on '.join(reasons)}" for profile_id, reasons in told.items()}


def _record(row: ProfileRow, trial_ids: tuple[int, ...], invalidated: str | None) -> ProfileRecord:
    return ProfileRecord(
        id=row.id,
        lineage=row.lineage,
        created_at=moment(row.created_at),
        invalidated=invalidated,
        fingerprint=row.fingerprint,
        model_digest=row.model_digest,
        workload=Workload(**row.workload),
        objectives=objectives_of(row),
        quality_level=row.quality_level,
        limits=limits_of(row),
        status=ProfileStatus(row.status),
        conditions=cast("Conditions", row.conditions),
        config=Config.from_json(row.config),
        variant_digest=row.variant_digest,
        bits_per_weight=row.bits_per_weight,
        metrics=row.metrics,
        baseline_config=Config.from_json(row.baseline_config),
        baseline_metrics=row.baseline_metrics,
        speedup=interval_of(row.speedup),
        quality=None if row.quality is None else quality_of(row.quality),
        engine_build=row.engine_build,
        kernel=row.kernel,
        study_id=row.study_id,
        comparison_id=row.comparison_id,
        trial_ids=trial_ids,
        facts=row.facts,
    )
