"""Our tables are the record, Optuna's in the same database an index that follows."""

import sqlite3
from contextlib import closing

import optuna

from tests.support.flow import Flow


def load(flow: Flow) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with flow.store() as store:
        return optuna.load_study(study_name=store.studies()[0].storage_name, storage=store.url)


def test_optuna_opens_the_database_of_a_search(flow_after: Flow, finished):
    study = load(flow_after)
    ours = flow_after.trials()
    assert len(study.trials) == len(ours)
    assert study.best_value <= finished[1]["baseline"]["metrics"]["response_ms.p50"]


def test_the_index_is_whole_again_after_its_tables_were_dropped(flow_after: Flow, quick_quality):
    with closing(sqlite3.connect(flow_after.home.database)) as connection:
        names = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if not name.startswith(("cputune_", "sqlite_")):
                connection.execute(f"DROP TABLE {name}")
        connection.commit()
    flow_after.search(trials=1)
    assert len(load(flow_after).trials) == len(flow_after.trials())
