"""Optuna's storage follows our tables, whatever became of it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from profiles.vocabulary import TrialStatus
from tuner.search.index import NUMBER, IndexedTrial, synchronise

NAME = "tiny-chat"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'index.sqlite3'}"


@pytest.fixture
def trials(space) -> list[IndexedTrial]:
    make = space.make
    return [
        IndexedTrial(0, space.default("simulated"), TrialStatus.COMPLETE, 900.0),
        IndexedTrial(1, make("simulated", "q8_0", {"n_threads": 2}), TrialStatus.COMPLETE, 700.0),
        IndexedTrial(2, make("simulated", "q8_0", {"n_threads": 3}), TrialStatus.CRASH, None),
        IndexedTrial(3, make("simulated", "q4_0", {"n_threads": 3}), TrialStatus.INFEASIBLE, 500.0),
        IndexedTrial(4, make("simulated", "bf16", {"n_threads": 1}), TrialStatus.PRUNED, 1300.0),
    ]


def opened(url: str) -> optuna.Study:
    return optuna.load_study(study_name=NAME, storage=url)


@pytest.fixture(autouse=True)
def quiet_optuna():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_optuna_opens_the_study_and_ranks_it_as_we_do(space, url, trials):
    assert synchronise(url, NAME, "minimize", space, trials) == 5
    study = opened(url)
    assert study.best_trial.user_attrs[NUMBER] == 1
    assert study.best_value == 700.0
    assert study.best_params["simulated/n_threads"] == 2
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 2 + [TrialState.PRUNED] * 3
    assert [t.user_attrs["status"] for t in study.trials][2:] == ["crash", "infeasible", "pruned"]


def test_only_what_is_missed_is_told(space, url, trials):
    assert synchronise(url, NAME, "minimize", space, trials[:2]) == 2
    assert synchronise(url, NAME, "minimize", space, trials) == 3
    assert synchronise(url, NAME, "minimize", space, trials) == 0
    assert [t.user_attrs[NUMBER] for t in opened(url).trials] == [0, 1, 2, 3, 4]


def test_s02_what_only_optuna_knows_is_failed(space, url, trials):
    synchronise(url, NAME, "minimize", space, trials[:2])
    opened(url).ask()
    synchronise(url, NAME, "minimize", space, trials)
    states = {t.user_attrs.get(NUMBER): t.state for t in opened(url).trials}
    assert states[None] is TrialState.FAIL
    assert TrialState.RUNNING not in states.values()
    assert opened(url).best_value == 700.0


def test_dropped_tables_are_built_again(space, url, trials, tmp_path: Path):
    synchronise(url, NAME, "minimize", space, trials)
    with closing(sqlite3.connect(tmp_path / "index.sqlite3")) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.commit()
    assert synchronise(url, NAME, "minimize", space, trials) == 5
    assert opened(url).best_value == 700.0


def test_a_rate_is_maximized(space, url, trials):
    synchronise(url, NAME, "maximize", space, trials)
    assert opened(url).best_value == 900.0
