"""Verbs on interleaved comparisons: start, add a pair, end, read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlmodel import col, func, select

from profiles.errors import NotFoundError, StoreError
from profiles.records import COMPARISON_SPACE, ComparisonRecord, PairRecord
from profiles.store.verbs import Verbs, existing, interval_document, interval_of, moment, now
from profiles.tables import ComparisonRow, PairRow, StudyRow
from profiles.vocabulary import Config, Interval


class Comparisons(Verbs):
    """What was confirmed."""

    def start_comparison(
        self, study_id: str, config_a: Config, config_b: Config, metric: str
    ) -> ComparisonRecord:
        """Record that two configurations are being compared; NotFoundError for an unknown study."""
        with self._database.writing() as session:
            existing(session, StudyRow, study_id, "study")
            row = ComparisonRow(
                study_id=study_id,
                config_a=config_a.to_json(),
                config_b=config_b.to_json(),
                metric=metric,
                interval=None,
                verdict=None,
                started_at=now(),
                finished_at=None,
            )
            session.add(row)
            session.flush()
            return comparison_record(row)

    def add_pair(
        self,
        comparison_id: int,
        a_values: Sequence[float],
        b_values: Sequence[float],
        *,
        dropped: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> PairRecord:
        """Store a pair of processes, clean or dropped with its cause.

        Raises NotFoundError for an unknown comparison, StoreError for one that has ended.
        """
        with self._database.writing() as session:
            parent = existing(session, ComparisonRow, comparison_id, "comparison", for_update=True)
            if parent.finished_at is not None:
                raise StoreError(f"comparison {comparison_id} has ended; it takes no more pairs")
            count = session.exec(select(func.count()).where(PairRow.comparison_id == comparison_id)).one()
            row = PairRow(
                comparison_id=comparison_id,
                number=count,
                a_values=list(a_values),
                b_values=list(b_values),
                dropped=dropped,
                facts=dict(facts or {}),
                created_at=now(),
            )
            session.add(row)
            return pair_record(row)

    def finish_comparison(
        self, comparison_id: int, interval: Interval | None, verdict: str
    ) -> ComparisonRecord:
        """Record a comparison's estimate with its limits, and what follows from them."""
        with self._database.writing() as session:
            row = existing(session, ComparisonRow, comparison_id, "comparison")
            row.interval, row.verdict, row.finished_at = interval_document(interval), verdict, now()
            session.add(row)
            return comparison_record(row)

    def comparisons(self, study_id: str) -> tuple[ComparisonRecord, ...]:
        """A study's comparisons, oldest first."""
        query = (
            select(ComparisonRow).where(ComparisonRow.study_id == study_id).order_by(col(ComparisonRow.id))
        )
        with self._database.reading() as session:
            return tuple(comparison_record(row) for row in session.exec(query))

    def comparison(self, comparison_id: int) -> ComparisonRecord:
        """A comparison by its id; NotFoundError for an unknown one."""
        with self._database.reading() as session:
            row = session.get(ComparisonRow, comparison_id)
            if row is None:
                known = session.exec(select(func.max(ComparisonRow.id))).one()
                newest = f"the newest is c-{known}" if known else "none was measured yet"
                raise NotFoundError(
                    f"no comparison c-{comparison_id}", hint=f"{newest}; `cputune history` lists them"
                )
            return comparison_record(row)

    def asked_comparisons(
        self,
        *,
        fingerprint: str | None = None,
        model_digest: str | None = None,
        workload_name: str | None = None,
        limit: int | None = None,
    ) -> tuple[ComparisonRecord, ...]:
        """Comparisons that a user asked for, not those of searches, which match every filter given; the
        last started first."""
        query = (
            select(ComparisonRow)
            .join(StudyRow, col(StudyRow.id) == ComparisonRow.study_id)
            .where(StudyRow.space_hash == COMPARISON_SPACE)
            .order_by(col(ComparisonRow.id).desc())
            .limit(limit)
        )
        if fingerprint is not None:
            query = query.where(StudyRow.fingerprint == fingerprint)
        if model_digest is not None:
            query = query.where(StudyRow.model_digest == model_digest)
        if workload_name is not None:
            query = query.where(col(StudyRow.workload)["name"].as_string() == workload_name)
        with self._database.reading() as session:
            return tuple(comparison_record(row) for row in session.exec(query))

    def pairs(self, comparison_id: int) -> tuple[PairRecord, ...]:
        """A comparison's pairs in the order they were measured, dropped ones included."""
        return self.pairs_of([comparison_id])[comparison_id]

    def pairs_of(self, comparison_ids: Sequence[int]) -> dict[int, tuple[PairRecord, ...]]:
        """The pairs of some comparisons, by their ids."""
        query = (
            select(PairRow)
            .where(col(PairRow.comparison_id).in_(comparison_ids))
            .order_by(col(PairRow.comparison_id), col(PairRow.number))
        )
        found: dict[int, list[PairRecord]] = {comparison_id: [] for comparison_id in comparison_ids}
        with self._database.reading() as session:
            for row in session.exec(query):
                found[row.comparison_id].append(pair_record(row))
        return {comparison_id: tuple(pairs) for comparison_id, pairs in found.items()}


def comparison_record(row: ComparisonRow) -> ComparisonRecord:
    """A row as a value."""
    assert row.id is not None
    return ComparisonRecord(
        id=row.id,
        study_id=row.study_id,
        config_a=Config.from_json(row.config_a),
        config_b=Config.from_json(row.config_b),
        metric=row.metric,
        interval=interval_of(row.interval),
        verdict=row.verdict,
        started_at=moment(row.started_at),
        finished_at=moment(row.finished_at) if row.finished_at else None,
    )


def pair_record(row: PairRow) -> PairRecord:
    """A row as a value."""
    return PairRecord(row.number, tuple(row.a_values), tuple(row.b_values), row.dropped, row.facts)
