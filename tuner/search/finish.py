"""The last stage: confirm the leaders against the default, the first that runs, keeping every pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from profiles.records import ComparisonRecord, StudyRecord
from profiles.records import Measurement as MeasurementKey
from profiles.store import Store
from profiles.vocabulary import Config, Objective, RoundSamples, Workload
from tuner.errors import WorkerError
from tuner.events import Event, Observer
from tuner.measurement.bench import Measurement
from tuner.search.budget import Budget
from tuner.search.confirm import Confirmation, Pair, Side, confirm, plan
from tuner.search.ledger import Estimate
from tuner.search.objectives import measured_value
from tuner.search.pairs import Values
from tuner.search.ports import Runner

MORE_ROUNDS = 5
"""Run at once for a limit that needs more samples."""


@dataclass(frozen=True)
class Decided:
    """What was confirmed; `confirmation` is None where the default itself leads.

    It is also None where leaders could not be confirmed: `unconfirmed` says why then.
    """

    best: Config
    confirmation: Confirmation | None
    comparison_id: int | None
    unconfirmed: str | None = None


@dataclass(frozen=True)
class Finish:
    """What confirming needs besides the leaders."""

    store: Store
    study: StudyRecord
    runner: Runner
    objective: Objective
    workload: Workload
    identify: Callable[[Config], MeasurementKey]
    budget: Budget
    observer: Observer
    setting: Callable[[], Mapping[str, object]] = dict
    """What pairs must have in common to be judged together (`Workshop.setting`)."""
    unkept: Callable[[Config], tuple[str, ...]] = lambda _: ()
    """Why a configuration, as measured by now, may not be published."""
    lacks_samples: Callable[[Config], bool] = lambda _: False
    """Whether a limit is not shown to be kept only because there are too few samples."""

    def first_that_runs(self, baseline: Estimate, leaders: Sequence[Estimate], startup_s: float) -> Decided:
        """Confirm the best leader; the next one where its processes fail or where it is not shown to keep a
        limit; the default when none is left.

        Where the default itself may not be published, the best that may is, even if it is slower.
        """
        self.observer(Event("stage", "confirmation"))
        lost = ""
        for place, leader in enumerate(leaders):
            if leader.config == baseline.config:
                self._earn(baseline.config)
                if not self.unkept(baseline.config):
                    break
                continue
            if place and not self.budget.left_s:
                lost = lost or "the budget ended before they could be confirmed"
                break
            comparison, earlier = open_comparison(
                self.store,
                self.study.id,
                baseline.config,
                leader.config,
                self.objective.metric,
                self.setting(),
            )
            confirmation = confirm(
                self.runner,
                {"default": baseline.config, "best": leader.config},
                self.objective,
                self.value,
                plan=plan(baseline, leader, startup_s, self.budget.total_s, self.workload),
                budget=self.budget,
                earlier=[Pair(*values) for values in earlier],
                keep=partial(self._keep, comparison),
                observer=self.observer,
            )
            if confirmation is None:
                self.store.finish_comparison(comparison.id, None, "failed")
                lost = "too few pairs of processes ran to their end"
                continue
            self._earn(leader.config)
            reasons = self.unkept(leader.config)
            if reasons:
                self.observer(Event("note", f"a leader is left out: {'; '.join(reasons)}"))
                self.store.finish_comparison(comparison.id, confirmation.speedup, "infeasible")
                continue
            if confirmation.status == "no_gain" and self.unkept(baseline.config):
                confirmation = replace(confirmation, status="provisional")
            self.store.finish_comparison(comparison.id, confirmation.speedup, confirmation.status)
            return Decided(leader.config, confirmation, comparison.id)
        return Decided(baseline.config, None, None, lost or None)

    def _earn(self, config: Config) -> None:
        """Run more rounds while a limit needs more samples and time is left."""
        longest_s = 0.0
        while self.lacks_samples(config) and self.budget.left_s > longest_s:
            try:
                measured = self.runner.measure(config, rounds=MORE_ROUNDS, kind="full")
            except WorkerError as failure:
                self.observer(Event("note", f"measuring for a limit failed: {failure.reason}"))
                return
            longest_s = max(longest_s, measured.seconds)
            self.store.add_rounds(self.identify(config), measured.rounds)

    def value(self, rounds: Sequence[RoundSamples]) -> float:
        """The objective of one process, as measured over its clean rounds."""
        return measured_value(self.objective, self.workload, rounds)

    def _keep(self, comparison: ComparisonRecord, pair: Pair, measured: Mapping[Side, Measurement]) -> None:
        self.store.add_rounds(self.identify(comparison.config_a), measured["default"].rounds)
        self.store.add_rounds(self.identify(comparison.config_b), measured["best"].rounds)
        self.store.add_pair(comparison.id, [pair.default], [pair.best], facts=self.setting())


def open_comparison(
    store: Store, study_id: str, a: Config, b: Config, metric: str, setting: Mapping[str, object]
) -> tuple[ComparisonRecord, tuple[Values, ...]]:
    """An interrupted comparison of the same two with its clean pairs, or a new one.

    Only pairs measured in the same `setting` (builds, kernel, conditions) are taken up again.
    """
    for known in store.comparisons(study_id):
        same = (known.config_a, known.config_b, known.metric) == (a, b, metric)
        if same and known.finished_at is None:
            pairs = [p for p in store.pairs(known.id) if p.dropped is None and dict(p.facts) == dict(setting)]
            return known, tuple((pair.a_values[0], pair.b_values[0]) for pair in pairs)
    return store.start_comparison(study_id, a, b, metric), ()
