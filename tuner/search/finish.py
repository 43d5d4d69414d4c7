"""The last stage: confirm the leaders against the default, the first that runs, keeping every pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from profiles.records import ComparisonRecord, StudyRecord
from profiles.records import Measurement as MeasurementKey
from profiles.store import Store
from profiles.vocabulary import Config, Objective, RoundSamples, Workload
from tuner.events import Event, Observer
from tuner.measurement.bench import Measurement
from tuner.measurement.metrics import clean_rounds
from tuner.measurement.statistics import median
from tuner.search.budget import Budget
from tuner.search.confirm import Confirmation, Pair, Side, confirm, plan
from tuner.search.ledger import Estimate
from tuner.search.objectives import predict
from tuner.search.ports import Runner


@dataclass(frozen=True)
class Decided:
    """What was confirmed; `confirmation` is None where the default itself leads."""

    best: Config
    confirmation: Confirmation | None
    comparison_id: int | None


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

    def first_that_runs(self, baseline: Estimate, leaders: Sequence[Estimate], startup_s: float) -> Decided:
        """Confirm the best leader; the next one where its processes fail; the default when none is left."""
        self.observer(Event("stage", "confirmation"))
        for leader in leaders:
            if leader.config == baseline.config:
                break
            comparison, earlier = self._comparison(baseline.config, leader.config)
            confirmation = confirm(
                self.runner,
                {"default": baseline.config, "best": leader.config},
                self.objective,
                self.value,
                plan=plan(baseline, leader, startup_s, self.budget.total_s, self.workload),
                budget=self.budget,
                earlier=earlier,
                keep=partial(self._keep, comparison),
                observer=self.observer,
            )
            if confirmation is not None:
                self.store.finish_comparison(comparison.id, confirmation.speedup, confirmation.status)
                return Decided(leader.config, confirmation, comparison.id)
            self.store.finish_comparison(comparison.id, None, "failed")
        return Decided(baseline.config, None, None)

    def value(self, rounds: Sequence[RoundSamples]) -> float:
        """The objective of one process: the median over its clean rounds."""
        return median(
            [
                predict(self.objective, self.workload, median(r.ttft_ms), _mean_gap_ms(r))
                for r in clean_rounds(rounds)
            ]
        )

    def _comparison(self, baseline: Config, best: Config) -> tuple[ComparisonRecord, tuple[Pair, ...]]:
        """An interrupted comparison of the same two with its pairs, or a new one."""
        metric = self.objective.metric
        for known in self.store.comparisons(self.study.id):
            same = (known.config_a, known.config_b, known.metric) == (baseline, best, metric)
            if same and known.finished_at is None:
                pairs = [pair for pair in self.store.pairs(known.id) if pair.dropped is None]
                return known, tuple(Pair(pair.a_values[0], pair.b_values[0]) for pair in pairs)
        return self.store.start_comparison(self.study.id, baseline, best, metric), ()

    def _keep(self, comparison: ComparisonRecord, pair: Pair, measured: Mapping[Side, Measurement]) -> None:
        self.store.add_rounds(self.identify(comparison.config_a), measured["default"].rounds)
        self.store.add_rounds(self.identify(comparison.config_b), measured["best"].rounds)
        self.store.add_pair(comparison.id, [pair.default], [pair.best])


def _mean_gap_ms(samples: RoundSamples) -> float:
    gaps = [gap for stream in samples.gaps_ms for gap in stream]
    return sum(gaps) / len(gaps)
