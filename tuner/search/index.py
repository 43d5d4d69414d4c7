"""Optuna's own storage as an index over our trials, so that its dashboard and plots open the study."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from profiles.vocabulary import Config, TrialStatus
from tuner.search.sampler import distributions, parameters
from tuner.search.space import Space

NUMBER = "cputune_trial"


@dataclass(frozen=True)
class IndexedTrial:
    """What the index says of one of our trials."""

    number: int
    config: Config
    status: TrialStatus
    value: float | None


def synchronise(
    url: str,
    name: str,
    direction: Literal["minimize", "maximize"],
    space: Space,
    trials: Iterable[IndexedTrial],
) -> int:
    """Tell Optuna what it misses and fail what only it knows; the number of trials added.

    Our tables are the record: the index can be dropped and is whole again after the next call.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = RDBStorage(url)
    with closing(_Remover(storage)):
        study = optuna.create_study(
            storage=storage, study_name=name, direction=direction, load_if_exists=True
        )
        known = {trial.user_attrs.get(NUMBER) for trial in study.get_trials(deepcopy=False)}
        for stray in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(stray.number, state=TrialState.FAIL)
        added = [_translate(space, trial) for trial in trials if trial.number not in known]
        study.add_trials(added)
        return len(added)


class _Remover:
    """Gives a storage's connections back."""

    def __init__(self, storage: RDBStorage) -> None:
        self._storage = storage

    def close(self) -> None:
        self._storage.remove_session()
        self._storage.engine.dispose()


def _translate(space: Space, trial: IndexedTrial) -> optuna.trial.FrozenTrial:
    complete = trial.status is TrialStatus.COMPLETE and trial.value is not None
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE if complete else TrialState.PRUNED,
        value=trial.value if complete else None,
        params=parameters(space, trial.config),
        distributions=distributions(space, trial.config),
        user_attrs={NUMBER: trial.number, "status": str(trial.status)},
        constraints={"feasible": 0.0 if complete else 1.0},
    )
