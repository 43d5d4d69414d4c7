"""Comparisons: pairs stored one by one, the verdict at the end."""

import pytest
from store_examples import DEFAULT, FAST

from profiles.errors import NotFoundError, StoreError
from profiles.records import PairRecord, StudyRecord
from profiles.store import Store
from profiles.vocabulary import Interval


def test_a_comparison_grows_by_pairs_and_ends(store: Store, study: StudyRecord) -> None:
    started = store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
    assert (started.config_a, started.config_b, started.metric) == (DEFAULT, FAST, "response_ms")
    assert (started.interval, started.verdict, started.finished_at) == (None, None, None)
    store.add_pair(started.id, [1000.5, 1001.0], (800.0, 801.0), facts={"order": "ABBA"})
    store.add_pair(started.id, [1.0], [2.0], dropped="run delay")
    assert store.pairs(started.id) == (
        PairRecord(0, (1000.5, 1001.0), (800.0, 801.0), None, {"order": "ABBA"}),
        PairRecord(1, (1.0,), (2.0,), "run delay", {}),
    )
    interval = Interval(1.25, 1.2, 1.3, 0.992)
    ended = store.finish_comparison(started.id, interval, "b")
    assert (ended.interval, ended.verdict) == (interval, "b")
    assert store.comparisons(study.id) == (ended,)


def test_a_comparison_may_end_without_an_estimate(store: Store, study: StudyRecord) -> None:
    started = store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
    ended = store.finish_comparison(started.id, None, "not resolved")
    assert (ended.interval, ended.verdict) == (None, "not resolved")


def test_an_ended_comparison_takes_no_pairs(store: Store, study: StudyRecord) -> None:
    started = store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
    store.finish_comparison(started.id, None, "not resolved")
    with pytest.raises(StoreError, match=f"comparison {started.id} has ended"):
        store.add_pair(started.id, [1.0], [1.0])
    assert store.pairs(started.id) == ()


def test_unknown_studies_and_comparisons(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no study 'nowhere'"):
        store.start_comparison("nowhere", DEFAULT, FAST, "response_ms")
    with pytest.raises(NotFoundError, match="no comparison '7'"):
        store.add_pair(7, [1.0], [1.0])
    with pytest.raises(NotFoundError, match="no comparison '7'"):
        store.finish_comparison(7, None, "a")
    assert store.comparisons("nowhere") == store.pairs(7) == ()
