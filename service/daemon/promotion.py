"""Whether a candidate may run, and what ran before it: the rules of promotion and rollback."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.errors import NotFoundError
from profiles.records import Promotion, PromotionAction, PromotionRecord
from profiles.store import Store
from service.daemon.ports import Gain


def is_promoted(gain: Gain, least_gain: float) -> bool:
    """Whether a candidate is shown to be faster by more than `least_gain`, a share: by the low limit."""
    return gain.ratio.low > 1 + least_gain


def words(gain: Gain, least_gain: float) -> str:
    """What the comparison says, in a few words."""
    ratio = gain.ratio
    measured = f"{ratio.estimate:.3f}x ({ratio.low:.3f} to {ratio.high:.3f}, {gain.pairs} pairs)"
    if is_promoted(gain, least_gain):
        return f"beside what ran before it is {measured} as fast"
    return f"beside what runs it is {measured} as fast: not shown to gain more than {least_gain:.0%}"


def numbers(gain: Gain | None) -> dict[str, float]:
    """The comparison as the history keeps it."""
    if gain is None:
        return {}
    ratio = gain.ratio
    return {
        "ratio": ratio.estimate,
        "low": ratio.low,
        "high": ratio.high,
        "confidence": ratio.confidence,
        "pairs": gain.pairs,
    }


def before(history: Sequence[PromotionRecord]) -> str | None:
    """What ran before the profile that runs now, by the decision that promoted it; None for the defaults."""
    running = history[0].running_id if history else None
    for entry in history:
        if entry.action is PromotionAction.PROMOTED and entry.running_id == running:
            return entry.other_id
    return None


def kept_out(history: Sequence[PromotionRecord]) -> frozenset[str]:
    """Profiles that were refused or given up: only a new search brings another one."""
    out = (PromotionAction.REFUSED, PromotionAction.ROLLED_BACK)
    return frozenset(entry.other_id for entry in history if entry.action in out and entry.other_id)


def roll_back(store: Store, last: PromotionRecord, reason: str) -> PromotionRecord:
    """Record that what runs is given up for what ran before; a daemon that watches the store runs that.

    Raises NotFoundError where the engine's defaults run, as nothing came before them.
    """
    if last.running_id is None:
        raise NotFoundError("the engine's defaults run: there is nothing before them")
    history = store.promotions(
        fingerprint=last.fingerprint, model_digest=last.model_digest, workload=last.workload
    )
    return store.record_promotion(
        Promotion(
            fingerprint=last.fingerprint,
            model_digest=last.model_digest,
            workload=last.workload,
            action=PromotionAction.ROLLED_BACK,
            running_id=before(history),
            other_id=last.running_id,
            reason=reason,
        )
    )
