"""Keeps a search's trials in the store as they end, and hands back those of earlier runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from profiles.records import Measurement as MeasurementKey
from profiles.records import StudyRecord, TrialRecord
from profiles.store import Store
from profiles.vocabulary import Config, RoundSamples, TrialStatus
from tuner.measurement.measurement import Measurement
from tuner.search.index import IndexedTrial, synchronise
from tuner.search.recorded import recorded
from tuner.search.space import Space

Summarise = Callable[[Config, Measurement], dict[str, float]]


class StoreRecorder:
    """One study's trials; each ends in one commit together with its rounds.

    `identify` says what a configuration's samples are filed under, `summarise` gives its flat metrics.
    """

    def __init__(
        self,
        store: Store,
        study: StudyRecord,
        *,
        identify: Callable[[Config], MeasurementKey],
        summarise: Summarise,
    ) -> None:
        self._store = store
        self._study = study
        self._identify = identify
        self._summarise = summarise
        self._ids: dict[int, int] = {}

    def begin(self, config: Config) -> int:
        """A trial starts; its number in the study."""
        started = self._store.start_trial(self._study.id, config, self._study.owner)
        self._ids[started.number] = started.id
        return started.number

    def finish(
        self,
        trial: int,
        config: Config,
        status: TrialStatus,
        reason: str | None,
        value: float | None,
        measured: Measurement | None,
    ) -> None:
        """A trial ended, with what it measured if anything."""
        trial_id = self._ids.pop(trial)
        if measured is None:
            self._store.finish_trial(trial_id, status, reason=reason)
            return
        self._store.finish_trial(
            trial_id,
            status,
            reason=reason,
            objective_value=value,
            effective=measured.effective,
            metrics=self._summarise(config, measured),
            measurement=self._identify(config),
            rounds=measured.rounds,
            facts=facts_of(measured),
        )

    def more_rounds(self, config: Config, rounds: tuple[RoundSamples, ...]) -> None:
        """More rounds of a configuration that has a trial already."""
        self._store.add_rounds(self._identify(config), rounds)

    def earlier(self) -> Iterator[tuple[TrialRecord, tuple[RoundSamples, ...]]]:
        """The study's ended trials with the short rounds of their measurement.

        Full ones are those of confirmations, which must not choose what they are to confirm. Those under load
        are left out too: a search begins with the machine taken for quiet, and ranks like beside like.
        Interrupted ones are left out: nothing was finished, so they may be tried again. So are those that
        a user declared wrong.
        """
        for trial in self._store.trials(self._study.id):
            if trial.status in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED) or trial.invalidated_at:
                continue
            key = trial.measurement_key
            quiet = key is not None and self._store.conditions(key) == "quiet"
            rounds = self._store.rounds(key) if key and quiet else ()
            yield trial, tuple(r for r in rounds if r.kind == "short")


def facts_of(measured: Measurement) -> dict[str, object]:
    """What a trial cost, and which settings its engine could not tell."""
    return {
        "seconds": measured.seconds,
        "generation_seconds": measured.generation_seconds,
        "switched": None if measured.switched is None else measured.switched.name.lower(),
        "unknown": list(measured.unknown),
    }


def refresh_index(store: Store, study: StudyRecord, space: Space) -> int:
    """Bring Optuna's storage up to our trials of a study; how many it missed."""
    found = recorded(store, study)
    ended = [
        IndexedTrial(trial.number, trial.config, found.status(trial), found.values(trial))
        for trial in found.trials
        if trial.status is not TrialStatus.RUNNING
    ]
    with store.schema_lock():
        return synchronise(store.url, study.storage_name, study.objectives, space, ended)
