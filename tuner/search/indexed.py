"""How many of our trials Optuna's tables know, by plain SQL: opening them with Optuna may alter them."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import Connection, inspect, text

NUMBER = "cputune_trial"
"""The user attribute of Optuna's trials that holds the number of ours."""
LEFT_OUT = "cputune_left_out"
"""That of its studies which counts the trials of ours that its parameters can't express."""

_THEIRS = f"""
    SELECT studies.study_name, count(*) FROM studies
    JOIN trials ON trials.study_id = studies.study_id
    JOIN trial_user_attributes AS known ON known.trial_id = trials.trial_id AND known.key = '{NUMBER}'
    GROUP BY studies.study_name
"""
_LEFT_OUT = f"""
    SELECT studies.study_name, counted.value_json FROM studies
    JOIN study_user_attributes AS counted
    ON counted.study_id = studies.study_id AND counted.key = '{LEFT_OUT}'
"""
_OURS = """
    SELECT cputune_study.storage_name, cputune_study.id, count(*) FROM cputune_study
    JOIN cputune_trial ON cputune_trial.study_id = cputune_study.id
    WHERE cputune_trial.status <> 'running' GROUP BY cputune_study.storage_name, cputune_study.id
"""


def behind(connection: Connection) -> list[str]:
    """The ids of the studies of which Optuna's index knows fewer or more trials than our tables hold; those
    that it left out are no lack."""
    known: Counter[str] = Counter()
    if inspect(connection).has_table("trial_user_attributes"):
        for query in (_THEIRS, _LEFT_OUT):
            known.update({str(name): int(count) for name, count in connection.execute(text(query))})
    return sorted(study for name, study, count in connection.execute(text(_OURS)) if known[name] != count)
