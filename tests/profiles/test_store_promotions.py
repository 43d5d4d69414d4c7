"""What daemons decided: recorded, listed, the last first."""

from dataclasses import replace

import pytest
from store_examples import MACHINE, MODEL, PROFILE

from profiles.errors import NotFoundError
from profiles.records import Promotion, PromotionAction
from profiles.store import Store
from profiles.vocabulary import WORKLOADS

PROMOTED = Promotion(
    fingerprint=MACHINE.fingerprint,
    model_digest=MODEL.digest,
    workload=WORKLOADS["chat"],
    action=PromotionAction.PROMOTED,
    running_id=None,
    other_id=None,
    reason="it is faster",
    numbers={"ratio": 1.2, "pairs": 8.0, "low": float("nan")},
)


def test_the_last_decision_comes_first(store: Store) -> None:
    profile = store.publish(PROFILE)
    first = store.record_promotion(replace(PROMOTED, running_id=profile.id))
    second = store.record_promotion(
        replace(PROMOTED, action=PromotionAction.ROLLED_BACK, other_id=profile.id, numbers={})
    )
    assert store.promotions() == (second, first)
    assert store.promotions(limit=1) == (second,)
    assert first.numbers == {"ratio": 1.2, "pairs": 8.0}
    assert (second.running_id, second.other_id) == (None, profile.id)


def test_decisions_are_found_by_what_they_are_about(store: Store) -> None:
    found = store.record_promotion(PROMOTED)
    same_lengths = replace(WORKLOADS["chat"], name="mine")
    assert store.promotions(fingerprint="f00d", model_digest=MODEL.digest, workload=same_lengths) == (found,)
    assert store.promotions(fingerprint="beef") == ()
    assert store.promotions(model_digest="00") == ()
    assert store.promotions(workload=WORKLOADS["rag"]) == ()


def test_an_unknown_profile_is_refused(store: Store) -> None:
    with pytest.raises(NotFoundError, match="p-none"):
        store.record_promotion(replace(PROMOTED, running_id="p-none"))
    assert store.promotions() == ()


def test_a_decision_outlives_its_model(store: Store) -> None:
    store.record_promotion(PROMOTED)
    store.forget_model(MODEL.digest)
    assert len(store.promotions()) == 1
