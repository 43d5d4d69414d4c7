"""Verbs on trials and the samples that they leave: start, finish in one commit, read again, invalidate."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import cast

from sqlalchemy import exists
from sqlmodel import Session, col, func, select

from profiles.errors import StoreError
from profiles.records import Conditions, Measurement, TrialRecord, workload_identity
from profiles.store.owner import is_alive
from profiles.store.verbs import Verbs, existing, finite, has_status, moment, now
from profiles.tables import MeasurementRow, RoundRow, StudyRow, TrialRow
from profiles.vocabulary import Config, RoundSamples, Setting, TrialStatus

_OPEN = frozenset({TrialStatus.RUNNING, TrialStatus.INTERRUPTED})


class Trials(Verbs):
    """What was tried and measured."""

    def start_trial(self, study_id: str, config: Config, owner: str, *, stage: str = "") -> TrialRecord:
        """Record that a configuration is being tried; NotFoundError for an unknown study."""
        with self._database.writing() as session:
            # Locked, so that two starts at once don't take the same number.
            existing(session, StudyRow, study_id, "study", for_update=True)
            last = session.exec(select(func.max(TrialRow.number)).where(TrialRow.study_id == study_id)).one()
            row = TrialRow(
                study_id=study_id,
                number=0 if last is None else last + 1,
                stage=stage,
                config=config.to_json(),
                config_key=config.key,
                status=TrialStatus.RUNNING,
                reason=None,
                objective_value=None,
                effective={},
                metrics={},
                measurement_key=None,
                facts={},
                owner=owner,
                started_at=now(),
                finished_at=None,
                invalidated_at=None,
            )
            session.add(row)
            session.flush()
            return trial_record(row)

    def finish_trial(
        self,
        trial_id: int,
        status: TrialStatus,
        *,
        reason: str | None = None,
        objective_value: float | None = None,
        effective: Mapping[str, Setting] | None = None,
        metrics: Mapping[str, float] | None = None,
        measurement: Measurement | None = None,
        rounds: Sequence[RoundSamples] = (),
        facts: Mapping[str, object] | None = None,
    ) -> TrialRecord:
        """Record how a trial ended together with its rounds, in one commit.

        A complete trial whose objective is not a finite number becomes invalid (S07), and metrics that are
        none are left out. A trial taken for interrupted may still be finished: it was only late.
        Raises NotFoundError for an unknown trial, StoreError for one that has ended, or for rounds without
        the measurement that they belong to.
        """
        if rounds and measurement is None:
            raise StoreError(
                f"trial {trial_id} has {len(rounds)} rounds without a measurement to file them under"
            )
        if objective_value is not None and not math.isfinite(objective_value):
            if status is TrialStatus.COMPLETE:
                status, reason = TrialStatus.INVALID, f"the objective came out as {objective_value}"
            objective_value = None
        with self._database.writing() as session:
            row = existing(session, TrialRow, trial_id, "trial")
            if TrialStatus(row.status) not in _OPEN:
                raise StoreError(
                    f"trial {trial_id} has ended as {row.status}; it can't end again as {status}"
                )
            if measurement is not None:
                _add_rounds(session, measurement, rounds, trial_id)
            row.status, row.reason, row.finished_at = status, reason, now()
            row.objective_value = objective_value
            row.effective, row.facts = dict(effective or {}), dict(facts or {})
            row.metrics = finite(metrics or {})
            row.measurement_key = None if measurement is None else measurement.key
            session.add(row)
            existing(session, StudyRow, row.study_id, "study").updated_at = now()
            return trial_record(row)

    def invalidate_trial(self, trial_id: int, why: str) -> TrialRecord:
        """Declare a measurement wrong (S11): its rounds are no longer read, profiles on it say so.

        Raises NotFoundError for an unknown trial, StoreError for one that still runs.
        """
        with self._database.writing() as session:
            row = existing(session, TrialRow, trial_id, "trial")
            if row.status == TrialStatus.RUNNING and is_alive(row.owner):
                raise StoreError(f"trial {trial_id} is still running; invalidate it when it has ended")
            # Once more only corrects the reason: what was published since did not read its rounds.
            row.invalidated_at = row.invalidated_at or now()
            row.status, row.reason = TrialStatus.INVALID, why
            row.finished_at = row.finished_at or now()
            session.add(row)
            return trial_record(row)

    def trial(self, trial_id: int) -> TrialRecord:
        """A trial by its id; NotFoundError for an unknown one."""
        with self._database.reading() as session:
            return trial_record(existing(session, TrialRow, trial_id, "trial"))

    def trials(
        self,
        study_id: str,
        *,
        statuses: Collection[TrialStatus] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> tuple[TrialRecord, ...]:
        """A study's trials by number, those of some statuses only if given; empty for an unknown study."""
        query = select(TrialRow).where(TrialRow.study_id == study_id).order_by(col(TrialRow.number))
        with self._database.reading() as session:
            if statuses is not None:
                query = query.where(has_status(session, TrialRow, statuses, TrialRow.study_id == study_id))
            return tuple(trial_record(row) for row in session.exec(query.limit(limit).offset(offset)))

    def add_rounds(
        self, measurement: Measurement, rounds: Sequence[RoundSamples], *, trial_id: int | None = None
    ) -> None:
        """Store more rounds of a measurement, of a trial or of none (a confirmation, say)."""
        with self._database.writing() as session:
            _add_rounds(session, measurement, rounds, trial_id)

    def conditions(self, measurement_key: str) -> Conditions | None:
        """The conditions that a measurement was made under; None for an unknown one."""
        with self._database.reading() as session:
            row = session.get(MeasurementRow, measurement_key)
            return None if row is None else cast("Conditions", row.conditions)

    def rounds(self, measurement_key: str) -> tuple[RoundSamples, ...]:
        """Every round ever stored of a measurement, oldest first, dropped ones with their cause included.

        Rounds of invalidated trials are left out.
        """
        wrong = exists().where(
            col(TrialRow.id) == RoundRow.trial_id, col(TrialRow.invalidated_at).is_not(None)
        )
        query = select(RoundRow).where(RoundRow.measurement_key == measurement_key, ~wrong)
        with self._database.reading() as session:
            return tuple(samples_of(row) for row in session.exec(query.order_by(col(RoundRow.id))))

    def short_rounds(self, study_id: str, conditions: Conditions) -> dict[str, tuple[RoundSamples, ...]]:
        """The short rounds of every measurement under these conditions that a study's trials asked for, by
        its key, as `rounds` gives them."""
        asked = (
            select(TrialRow.measurement_key)
            .join(MeasurementRow, col(MeasurementRow.key) == TrialRow.measurement_key)
            .where(TrialRow.study_id == study_id, MeasurementRow.conditions == conditions)
        )
        wrong = exists().where(
            col(TrialRow.id) == RoundRow.trial_id, col(TrialRow.invalidated_at).is_not(None)
        )
        query = select(RoundRow).where(
            col(RoundRow.measurement_key).in_(asked), RoundRow.kind == "short", ~wrong
        )
        found: dict[str, list[RoundSamples]] = {}
        with self._database.reading() as session:
            for row in session.exec(query.order_by(col(RoundRow.id))):
                found.setdefault(row.measurement_key, []).append(samples_of(row))
        return {key: tuple(rounds) for key, rounds in found.items()}

    def trial_rounds(self, trial_id: int) -> tuple[RoundSamples, ...]:
        """The rounds that one trial measured itself, oldest first; also those of an invalidated one."""
        query = select(RoundRow).where(RoundRow.trial_id == trial_id).order_by(col(RoundRow.id))
        with self._database.reading() as session:
            return tuple(samples_of(row) for row in session.exec(query))


def _add_rounds(
    session: Session, measurement: Measurement, rounds: Sequence[RoundSamples], trial_id: int | None
) -> None:
    if session.get(MeasurementRow, measurement.key) is None:
        session.add(
            MeasurementRow(
                key=measurement.key,
                fingerprint=measurement.fingerprint,
                engine_build=measurement.engine_build,
                variant_digest=measurement.variant_digest,
                config=measurement.config.to_json(),
                workload=workload_identity(measurement.workload),
                conditions=measurement.conditions,
                created_at=now(),
            )
        )
        session.flush()
    session.add_all(
        RoundRow(
            measurement_key=measurement.key,
            trial_id=trial_id,
            kind=samples.kind,
            samples=[samples.ttft_ms, samples.gaps_ms, samples.response_ms],
            wall_ms=samples.wall_ms,
            dropped=samples.dropped,
            facts=finite(samples.facts),
            created_at=now(),
        )
        for samples in rounds
    )


def samples_of(row: RoundRow) -> RoundSamples:
    """A row as a value."""
    ttft_ms, gaps_ms, response_ms = row.samples
    return RoundSamples(
        kind="full" if row.kind == "full" else "short",
        ttft_ms=tuple(ttft_ms),
        gaps_ms=tuple(tuple(stream) for stream in gaps_ms),
        response_ms=tuple(response_ms),
        wall_ms=row.wall_ms,
        dropped=row.dropped,
        facts=row.facts,
    )


def trial_record(row: TrialRow) -> TrialRecord:
    """A row as a value; a running trial whose process is gone reads as interrupted."""
    assert row.id is not None
    status = TrialStatus(row.status)
    if status is TrialStatus.RUNNING and not is_alive(row.owner):
        status = TrialStatus.INTERRUPTED
    return TrialRecord(
        id=row.id,
        study_id=row.study_id,
        number=row.number,
        stage=row.stage,
        config=Config.from_json(row.config),
        status=status,
        reason=row.reason,
        objective_value=row.objective_value,
        effective=row.effective,
        metrics=row.metrics,
        measurement_key=row.measurement_key,
        facts=row.facts,
        owner=row.owner,
        started_at=moment(row.started_at),
        finished_at=moment(row.finished_at) if row.finished_at else None,
        invalidated_at=moment(row.invalidated_at) if row.invalidated_at else None,
    )
