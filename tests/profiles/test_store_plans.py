"""Every query finds its rows by an index, so that a full store answers like an empty one."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from store_examples import DEFAULT, FAST, MACHINE, MEASUREMENT, MODEL, PROFILE, SPEC

from profiles.records import StudyRecord
from profiles.store import Store, owner_token
from profiles.vocabulary import WORKLOADS, TrialStatus

LARGE = ("trial", "round", "measurement", "pair", "profile", "profile_trial", "quality", "variant")
QUERIES: dict[str, Callable[[Store, str], object]] = {
    "studies": lambda store, study: store.studies(limit=20),
    "studies of a model": lambda store, study: store.studies(
        fingerprint="f", model_digest="m", workload=WORKLOADS["chat"], limit=20
    ),
    "studies of a workload": lambda store, study: store.studies(workload_name="chat", limit=20),
    "bundle of a study": lambda store, study: list(store.bundle([study])),
    "trial_counts": lambda store, study: store.trial_counts([study, "s-other"]),
    "trials": lambda store, study: store.trials(study, limit=20),
    "trials by status": lambda store, study: store.trials(study, statuses=set(TrialStatus), limit=20),
    "start_trial": lambda store, study: store.start_trial(study, FAST, owner_token()),
    "open_study": lambda store, study: store.open_study(SPEC, owner_token()),
    "rounds": lambda store, study: store.rounds(MEASUREMENT.key),
    "short_rounds": lambda store, study: store.short_rounds(study, "quiet"),
    "trial_rounds": lambda store, study: store.trial_rounds(1),
    "pairs": lambda store, study: store.pairs(1),
    "pairs_of": lambda store, study: store.pairs_of([1, 2]),
    "comparisons": lambda store, study: store.comparisons(study),
    "comparison": lambda store, study: store.comparison(store.comparisons(study)[0].id),
    "asked_comparisons": lambda store, study: store.asked_comparisons(model_digest="m", limit=20),
    "profiles": lambda store, study: store.profiles(limit=20),
    "profiles of a study": lambda store, study: store.profiles(study_id=study),
    "doubts": lambda store, study: store.doubts(["p-1", "p-2"]),
    "best_profile": lambda store, study: store.best_profile(
        MACHINE.fingerprint, MODEL.digest, WORKLOADS["chat"], SPEC.objectives, SPEC.quality_level, SPEC.limits
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_no_query_scans_a_large_table(store: Store, study: StudyRecord, name: str) -> None:
    store.publish(PROFILE)
    store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
    seen: list[tuple[str, Any]] = []

    def note(_c: object, _k: object, statement: str, parameters: object, *_: object) -> None:
        seen.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        QUERIES[name](store, study.id)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    selects = [(text, values) for text, values in seen if text.startswith("SELECT")]
    assert selects
    with closing(sqlite3.connect(str(store.path))) as connection:
        for statement, values in selects:
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
            scans = [step for step in plan if step.startswith("SCAN") and "USING INDEX" not in step]
            assert not [step for step in scans if step.split()[1].removeprefix("cputune_") in LARGE], plan
