"""Optuna's storage follows our tables, whatever became of it."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from profiles.vocabulary import Objective, TrialStatus
from tuner.search.index import NUMBER, IndexedTrial, synchronise

NAME = "tiny-chat"
RESPONSE = (Objective("response_ms"),)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'index.sqlite3'}"


@pytest.fixture
def trials(space) -> list[IndexedTrial]:
    make = space.make
    return [
        IndexedTrial(0, space.default("simulated"), TrialStatus.COMPLETE, (900.0,)),
        IndexedTrial(1, make("simulated", "q8_0", {"n_threads": 2}), TrialStatus.COMPLETE, (700.0,)),
        IndexedTrial(2, make("simulated", "q8_0", {"n_threads": 3}), TrialStatus.CRASH, None),
        IndexedTrial(3, make("simulated", "q4_0", {"n_threads": 3}), TrialStatus.INFEASIBLE, (500.0,)),
        IndexedTrial(4, make("simulated", "bf16", {"n_threads": 1}), TrialStatus.PRUNED, (1300.0,)),
    ]


def opened(url: str) -> optuna.Study:
    return optuna.load_study(study_name=NAME, storage=url)


@pytest.fixture(autouse=True)
def quiet_optuna():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_optuna_opens_the_study_and_ranks_it_as_we_do(space, url, trials):
    assert synchronise(url, NAME, RESPONSE, space, trials) == 5
    study = opened(url)
    assert study.best_trial.user_attrs[NUMBER] == 1
    assert study.best_value == 700.0
    assert study.best_params["simulated/n_threads"] == 2
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 2 + [TrialState.PRUNED] * 3
    assert [t.user_attrs["status"] for t in study.trials][2:] == ["crash", "infeasible", "pruned"]


def test_a_trial_beyond_the_space_is_no_part_of_the_study(space, url, trials):
    outside = replace(trials[1], number=5, config=trials[1].config.with_settings(n_threads=999))
    assert synchronise(url, NAME, RESPONSE, space, [*trials, outside]) == 5
    assert synchronise(url, NAME, RESPONSE, space, [*trials, outside]) == 0


def test_only_what_is_missed_is_told(space, url, trials):
    assert synchronise(url, NAME, RESPONSE, space, trials[:2]) == 2
    assert synchronise(url, NAME, RESPONSE, space, trials) == 3
    assert synchronise(url, NAME, RESPONSE, space, trials) == 0
    assert [t.user_attrs[NUMBER] for t in opened(url).trials] == [0, 1, 2, 3, 4]


def test_s02_what_only_optuna_knows_is_failed(space, url, trials):
    synchronise(url, NAME, RESPONSE, space, trials[:2])
    opened(url).ask()
    synchronise(url, NAME, RESPONSE, space, trials)
    states = {t.user_attrs.get(NUMBER): t.state for t in opened(url).trials}
    assert states[None] is TrialState.FAIL
    assert TrialState.RUNNING not in states.values()
    assert opened(url).best_value == 700.0


def test_dropped_tables_are_built_again(space, url, trials, tmp_path: Path):
    synchronise(url, NAME, RESPONSE, space, trials)
    with closing(sqlite3.connect(tmp_path / "index.sqlite3")) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.commit()
    assert synchronise(url, NAME, RESPONSE, space, trials) == 5
    assert opened(url).best_value == 700.0


def test_a_rate_is_maximized(space, url, trials):
    synchronise(url, NAME, (Objective("decode_tps", "maximize"),), space, trials)
    assert opened(url).best_value == 900.0


def test_two_objectives_are_two_directions_and_an_optuna_front(space, url, trials):
    both = (Objective("response_ms"), Objective("peak_rss_mib"))
    memory = {0: 300.0, 1: 200.0, 3: 150.0, 4: 100.0}
    paired = [replace(t, values=t.values and (t.values[0], memory[t.number])) for t in trials]
    assert synchronise(url, NAME, both, space, paired) == 5
    study = opened(url)
    assert [d.name for d in study.directions] == ["MINIMIZE", "MINIMIZE"]
    assert study.metric_names == ["response_ms", "peak_rss_mib"]
    # What was stopped early may still be the smallest; what is infeasible may not.
    assert {t.user_attrs[NUMBER] for t in study.best_trials} == {1, 4}


def test_another_objective_builds_the_index_anew(space, url, trials):
    synchronise(url, NAME, RESPONSE, space, trials)
    other = (Objective("ttft_ms"),)
    retold = [replace(t, values=t.values and (t.values[0] / 10,)) for t in trials]
    assert synchronise(url, NAME, other, space, retold) == 5
    assert opened(url).best_value == 70.0
    assert synchronise(url, NAME, other, space, retold) == 0
