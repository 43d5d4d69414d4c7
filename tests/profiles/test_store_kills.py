"""kill -9 before and after every commit: what was finished is there, what was not never half."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine
from store_examples import DEFAULT, FAST, MEASUREMENT, PROFILE, ROUND, SPEC, die, in_child

from profiles.records import StudyStatus
from profiles.store import Store, owner_token
from profiles.vocabulary import TrialStatus

STEPS = ("study", "trial", "rounds", "comparison", "pair", "profile", "status")


def search(store: Store, done: Callable[[str], None]) -> None:
    """A search in miniature: one commit for each of STEPS."""
    study = store.open_study(SPEC, owner_token())
    done("study")
    trial = store.start_trial(study.id, FAST, owner_token())
    done("trial")
    store.finish_trial(
        trial.id, TrialStatus.COMPLETE, objective_value=1.0, measurement=MEASUREMENT, rounds=[ROUND] * 3
    )
    done("rounds")
    comparison = store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
    done("comparison")
    store.add_pair(comparison.id, [1.0], [1.0])
    done("pair")
    store.publish(replace(PROFILE, study_id=study.id, trial_ids=(trial.id,)))
    done("profile")
    store.finish_study(study.id, StudyStatus.CONFIRMED)
    done("status")


def killed_at(path: Path, step: int, *, before_commit: bool) -> int:
    """Run the search in a child that dies around the commit of a step."""
    commits = 0

    def count(_connection: Connection) -> None:
        nonlocal commits
        if commits == step:
            die()
        commits += 1

    def work() -> None:
        with Store.open(path) as store:
            if before_commit:
                # Reads commit too, but the search above only writes.
                event.listen(Engine, "commit", count)
            search(store, lambda name: die() if not before_commit and name == STEPS[step] else None)

    return in_child(work)


@pytest.mark.parametrize("before_commit", [True, False])
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_s02_a_kill_leaves_whole_steps(store: Store, path: Path, step: int, before_commit: bool) -> None:
    store.close()
    assert killed_at(path, step, before_commit=before_commit) == -9
    count = step + (not before_commit)
    finished = frozenset(STEPS[:count])
    with Store.open(path) as store:
        studies = store.studies()
        assert len(studies) == ("study" in finished)
        trials = store.trials(studies[0].id) if studies else ()
        expected = TrialStatus.COMPLETE if "rounds" in finished else TrialStatus.INTERRUPTED
        assert [trial.status for trial in trials] == [expected] * ("trial" in finished)
        assert store.rounds(MEASUREMENT.key) == (ROUND,) * (3 * ("rounds" in finished))
        comparisons = store.comparisons(studies[0].id) if studies else ()
        assert len(comparisons) == ("comparison" in finished)
        assert sum(len(store.pairs(comparison.id)) for comparison in comparisons) == ("pair" in finished)
        profiles = store.profiles()
        assert [profile.trial_ids for profile in profiles] == [(trial.id,) for trial in trials][
            : len(profiles)
        ]
        assert len(profiles) == ("profile" in finished)
        if studies:
            status = StudyStatus.CONFIRMED if "status" in finished else StudyStatus.INTERRUPTED
            assert studies[0].status is status
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_d02_a_kill_while_the_tables_are_made_leaves_none(path: Path) -> None:
    def work() -> None:
        event.listen(Engine, "commit", lambda _connection: die())
        Store.open(path)

    assert in_child(work) == -9
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    with Store.open(path) as store:
        assert store.machines() == ()
