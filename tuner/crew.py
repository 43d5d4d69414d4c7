"""Everyone who takes part in one search, put together: runner, recorder, judge, finder, finisher."""

from __future__ import annotations

from functools import cached_property, partial

from profiles.records import Measurement as MeasurementKey
from profiles.records import StudyRecord
from profiles.vocabulary import Config
from tuner.measurement.bench import Bench
from tuner.narrowing import refusal_of
from tuner.publish import Outcome, metrics_of, trial_metrics
from tuner.request import SearchRequest
from tuner.search.budget import Budget
from tuner.search.finish import Decided, Finish
from tuner.search.judge import QualityJudge, quality_metrics
from tuner.search.ledger import Estimate
from tuner.search.limits import Gauge, Metrics, is_unearned, nearest
from tuner.search.load import LoadAwareRunner
from tuner.search.objectives import objective_of, predictions
from tuner.search.record import StoreRecorder
from tuner.search.search import Search
from tuner.search.space import Space
from tuner.workshop import Workshop


class Crew:
    """The parts of one search on one bench, and what they know together."""

    def __init__(
        self,
        request: SearchRequest,
        shop: Workshop,
        space: Space,
        study: StudyRecord,
        bench: Bench,
        budget: Budget,
    ) -> None:
        self._request, self._shop, self._space = request, shop, space
        self._study, self._budget = study, budget
        self.runner = LoadAwareRunner(bench, observer=shop.observer)
        self.gauge = Gauge(self.runner, partial(trial_metrics, shop))

    @cached_property
    def recorder(self) -> StoreRecorder:
        """Keeps every trial as it ends."""
        summarise = partial(trial_metrics, self._shop)
        return StoreRecorder(self._shop.store, self._study, identify=self.filed, summarise=summarise)

    @cached_property
    def judge(self) -> QualityJudge:
        """Says which configurations keep the quality level and the limits."""
        return QualityJudge(
            self._space,
            self._request.quality,
            self._shop.quality_measure(),
            observer=self._shop.observer,
            limits=self._request.limits,
            metrics_of=self.known,
            refuses=refusal_of(self._request, self._shop, self._space),
        )

    @cached_property
    def finder(self) -> Search:
        """Searches; it remembers what earlier runs of this study measured."""
        finder = Search(
            self._space,
            objective_of(self._shop.workload),
            runner=self.gauge,
            recorder=self.recorder,
            judge=self.judge,
            digest_of=lambda engine, label: self._shop.variant(engine, label).digest,
            budget=self._budget,
            trials=self._request.trials,
            seed=self._request.seed,
            observer=self._shop.observer,
        )
        for trial, rounds in self.recorder.earlier():
            self.gauge.remember(trial.config, trial.metrics)
            finder.remember(trial.config, rounds, trial.status, trial.reason)
        return finder

    @cached_property
    def finish(self) -> Finish:
        """Confirms."""
        return Finish(
            store=self._shop.store,
            study=self._study,
            runner=self.gauge,
            objective=objective_of(self._shop.workload),
            workload=self._shop.workload,
            identify=self.filed,
            budget=self._budget,
            observer=self._shop.observer,
            setting=lambda: self._shop.setting(self.runner.conditions),
            unkept=self.unkept,
            lacks_samples=self._lacks_samples,
        )

    def filed(self, config: Config) -> MeasurementKey:
        """What a configuration's samples are filed under, in the conditions of the moment."""
        return self._shop.identify(config, self.runner.conditions)

    def known(self, config: Config) -> Metrics:
        """What is measured of a configuration, with what its phases predict."""
        estimate = self.finder.ledger.estimate(config)
        predicted = predictions(self._shop.workload, estimate.ttft_ms, estimate.itl_ms) if estimate else {}
        return {**predicted, **self.gauge.metrics(config)}

    def unkept(self, config: Config) -> tuple[str, ...]:
        """Why a configuration may not be published, by exactly the metrics that it would show."""
        return self.judge.unkept(config, self._shown(config))

    def outcome(self, baseline: Estimate, leaders: list[Estimate], decided: Decided) -> Outcome:
        """What the search came to."""
        return Outcome(
            baseline=baseline.config,
            best=decided.best,
            runners_up=tuple(e for e in leaders if e.config not in (decided.best, baseline.config)),
            confirmation=decided.confirmation,
            comparison_id=decided.comparison_id,
            conditions=self.runner.conditions,
            dropped_rounds=self.runner.dropped,
            elapsed_s=self._budget.elapsed_s,
            default_failure=self.finder.default_failure,
            known={config: self.gauge.metrics(config) for config in self.gauge.configs},
            default_unkept=self.unkept(baseline.config),
            unconfirmed=decided.unconfirmed or self._untried(decided),
            nearest=nearest(
                self._request.limits,
                (
                    (config, {**self.known(config), **quality_metrics(self.judge.known(config))})
                    for config in self.gauge.configs
                    if not self.judge.misses_level(config)
                ),
            ),
        )

    def _untried(self, decided: Decided) -> str | None:
        """Why it means nothing that the default leads: there was no time for anything else."""
        if decided.confirmation is None and len(self.finder.ledger) <= 1 and self._request.trials is None:
            return "only the default could be measured within the budget"
        return None

    def _shown(self, config: Config) -> Metrics:
        return metrics_of(self._shop, config, self.runner.conditions, self.gauge.metrics(config))

    def _lacks_samples(self, config: Config) -> bool:
        return any(is_unearned(limit, self._shown(config)) for limit in self._request.limits)
