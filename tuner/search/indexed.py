"""How many of our trials Optuna's tables know, by plain SQL: opening them with Optuna may alter them."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

NUMBER = "cputune_trial"
"""The user attribute of Optuna's trials that holds the number of ours."""

_THEIRS = f"""
    SELECT studies.study_name, count(*) FROM studies
    JOIN trials ON trials.study_id = studies.study_id
    JOIN trial_user_attributes AS known ON known.trial_id = trials.trial_id AND known.key = '{NUMBER}'
    GROUP BY studies.study_name
"""
_OURS = """
    SELECT cputune_study.storage_name, cputune_study.id, count(*) FROM cputune_study
    JOIN cputune_trial ON cputune_trial.study_id = cputune_study.id
    WHERE cputune_trial.status <> 'running' GROUP BY cputune_study.storage_name, cputune_study.id
"""


def behind(connection: Connection) -> list[str]:
    """The ids of the studies of which Optuna's index knows fewer or more trials than our tables hold."""
    known: dict[str, int] = {}
    if inspect(connection).has_table("trial_user_attributes"):
        known = {str(name): int(count) for name, count in connection.execute(text(_THEIRS))}
    return sorted(
        study for name, study, count in connection.execute(text(_OURS)) if known.get(name, 0) != count
    )
