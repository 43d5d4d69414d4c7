"""Optuna's own storage as an index over our trials, so that its dashboard and plots open the study."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from profiles.interrupts import held_back
from profiles.vocabulary import Config, Objective, TrialStatus
from tuner.search.indexed import LEFT_OUT, NUMBER
from tuner.search.sampler import distributions, is_expressible, parameters
from tuner.search.space import Space

OBJECTIVES = "cputune_objectives"


@dataclass(frozen=True)
class IndexedTrial:
    """What the index says of one of our trials; `values` has one for each objective."""

    number: int
    config: Config
    status: TrialStatus
    values: tuple[float, ...] | None


def synchronise(
    url: str, name: str, objectives: Sequence[Objective], space: Space, trials: Iterable[IndexedTrial]
) -> int:
    """Tell Optuna what it misses and fail what only it knows; the number of trials added.

    Our tables are the record: the index can be dropped and is whole again after the next call. So it is
    where a study was asked for other objectives: values once told can't be told anew.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with _quiet():
        storage = RDBStorage(url)
    with held_back(), closing(_Remover(storage)):
        study = _opened(storage, name, objectives)
        known = {trial.user_attrs.get(NUMBER) for trial in study.get_trials(deepcopy=False)}
        for stray in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(stray.number, state=TrialState.FAIL)
        missed = [trial for trial in trials if trial.number not in known]
        # Neighbours of a winner with what no search varies are no part of Optuna's study.
        added = [translated(space, trial) for trial in missed if is_expressible(space, trial.config)]
        study.add_trials(added)
        study.set_user_attr(LEFT_OUT, len(missed) - len(added))
        return len(added)


def _opened(storage: RDBStorage, name: str, objectives: Sequence[Objective]) -> optuna.Study:
    metrics = [objective.metric for objective in objectives]
    directions = [objective.direction for objective in objectives]
    study = optuna.create_study(storage=storage, study_name=name, directions=directions, load_if_exists=True)
    if study.user_attrs.get(OBJECTIVES, metrics) != metrics:
        optuna.delete_study(study_name=name, storage=storage)
        study = optuna.create_study(storage=storage, study_name=name, directions=directions)
    study.set_user_attr(OBJECTIVES, metrics)
    with _quiet():
        study.set_metric_names(metrics)
    return study


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's warnings of what is experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


class _Remover:
    """Gives a storage's connections back."""

    def __init__(self, storage: RDBStorage) -> None:
        self._storage = storage

    def close(self) -> None:
        self._storage.remove_session()
        self._storage.engine.dispose()


def translated(space: Space, trial: IndexedTrial) -> optuna.trial.FrozenTrial:
    """A trial as Optuna knows them.

    One that was stopped early has no value in a study of one objective, where it would count as an
    estimate; among two it may be the least of the other one.
    """
    statuses = [TrialStatus.COMPLETE]
    if trial.values is not None and len(trial.values) > 1:
        statuses.append(TrialStatus.PRUNED)
    complete = trial.status in statuses and trial.values is not None
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE if complete else TrialState.PRUNED,
        values=trial.values if complete else None,
        params=parameters(space, trial.config),
        distributions=distributions(space, trial.config),
        user_attrs={NUMBER: trial.number, "status": str(trial.status)},
        constraints={"feasible": 0.0 if complete else 1.0},
    )
