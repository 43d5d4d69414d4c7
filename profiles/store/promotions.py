"""Verbs on what a daemon ran: record a promotion, a refusal or a rollback; list them."""

from __future__ import annotations

from sqlmodel import col, select

from profiles.records import Promotion, PromotionAction, PromotionRecord
from profiles.store.verbs import Verbs, existing, finite, moment, now, workload_key
from profiles.tables import ProfileRow, PromotionRow
from profiles.vocabulary import Workload


class Promotions(Verbs):
    """What ran when, and why."""

    def record_promotion(self, promotion: Promotion) -> PromotionRecord:
        """Store what was decided; NotFoundError where one of its profiles is not stored."""
        with self._database.writing() as session:
            for profile_id in (promotion.running_id, promotion.other_id):
                if profile_id is not None:
                    existing(session, ProfileRow, profile_id, "profile")
            row = PromotionRow(
                fingerprint=promotion.fingerprint,
                model_digest=promotion.model_digest,
                workload=promotion.workload.to_json(),
                workload_key=workload_key(promotion.workload),
                action=promotion.action,
                running_id=promotion.running_id,
                other_id=promotion.other_id,
                reason=promotion.reason,
                numbers=finite(promotion.numbers),
                created_at=now(),
            )
            session.add(row)
            session.flush()
            return _record(row)

    def promotions(
        self,
        *,
        fingerprint: str | None = None,
        model_digest: str | None = None,
        workload: Workload | None = None,
        limit: int | None = None,
    ) -> tuple[PromotionRecord, ...]:
        """What was decided, the last first; the first one's `running_id` is what runs now."""
        query = select(PromotionRow).order_by(col(PromotionRow.id).desc()).limit(limit)
        if fingerprint is not None:
            query = query.where(PromotionRow.fingerprint == fingerprint)
        if model_digest is not None:
            query = query.where(PromotionRow.model_digest == model_digest)
        if workload is not None:
            query = query.where(PromotionRow.workload_key == workload_key(workload))
        with self._database.reading() as session:
            return tuple(_record(row) for row in session.exec(query))


def _record(row: PromotionRow) -> PromotionRecord:
    assert row.id is not None
    return PromotionRecord(
        id=row.id,
        created_at=moment(row.created_at),
        fingerprint=row.fingerprint,
        model_digest=row.model_digest,
        workload=Workload(**row.workload),
        action=PromotionAction(row.action),
        running_id=row.running_id,
        other_id=row.other_id,
        reason=row.reason,
        numbers=row.numbers,
    )
