"""Everyone who takes part in one search, put together: runner, recorder, judge, finder, finisher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial

from profiles.records import Measurement as MeasurementKey
from profiles.records import StudyRecord
from profiles.select import pareto_front
from profiles.vocabulary import Config
from tuner import environment
from tuner.engines import REFERENCE
from tuner.events import Event
from tuner.measured import metrics_of, trial_metrics
from tuner.measurement import placement
from tuner.measurement.bench import Bench
from tuner.measurement.neighbour import Neighbour
from tuner.narrowing import problem_of, refusal_of
from tuner.outcome import Outcome
from tuner.request import SearchRequest
from tuner.search.background import SEARCH_SHARE, ByTurns, Finals, file_rounds
from tuner.search.budget import Budget
from tuner.search.finish import Decided, Finish, Pairing
from tuner.search.judge import QualityJudge, quality_metrics
from tuner.search.ledger import Estimate
from tuner.search.limits import Gauge, Metrics, is_unearned, nearest
from tuner.search.load import LoadAwareRunner
from tuner.search.objectives import objective_of, predictions
from tuner.search.policy import MOST_SHARE, Policies, can_vary, varies
from tuner.search.record import StoreRecorder
from tuner.search.search import Search
from tuner.search.space import Space
from tuner.search.tie import is_cheaper
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
        self._study, self._budget, self._bench = study, budget, bench
        self._before = environment.now(shop.machine)
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
            budget=self._budget.shortened(SEARCH_SHARE) if self._request.busy_share else self._budget,
            trials=self._request.trials,
            full_budget=self._request.full_budget,
            kept_share=MOST_SHARE if can_vary(self._space) else 0.0,
            second=next(iter(self._request.objectives[1:]), None),
            known=self.gauge.metrics,
            conditions=lambda: self.runner.conditions,
            seed=self._request.seed,
            observer=self._shop.observer,
        )
        for trial, rounds in self.recorder.earlier():
            self.gauge.remember(trial.config, trial.metrics)
            if varies(self._space, trial.config):
                continue
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
            setting=self._setting,
            unkept=self.unkept,
            lacks_samples=self._lacks_samples,
            pairing=self._pairing,
            cheaper=partial(is_cheaper, self._space, self.gauge.metrics),
        )

    @cached_property
    def policies(self) -> Policies:
        """Tries mapping and locking around the winner."""
        return Policies(
            self._space,
            objective_of(self._shop.workload),
            self._request.limits,
            runner=self.gauge,
            recorder=self.recorder,
            ledger=self.finder.ledger,
            summarise=partial(trial_metrics, self._shop),
            problem_of=lambda config: problem_of(self._shop, self._shop.engine(config.engine), config),
            fixed=frozenset(self._request.space),
            budget=self._budget,
            observer=self._shop.observer,
        )

    @cached_property
    def finals(self) -> Finals:
        """Ranks finalists by their times quiet and beside a busy neighbour."""
        return Finals(
            self._space,
            objective_of(self._shop.workload),
            self._request.busy_share,
            runner=ByTurns(self.gauge, self.runner, self._beside),
            recorder=self.recorder,
            keep=lambda config, rounds: file_rounds(self._shop.store, self.filed(config), rounds),
            judge=self.judge,
            budget=self._budget,
            observer=self._shop.observer,
        )

    def under_load(self, baseline: Estimate, leaders: list[Estimate]) -> list[Estimate]:
        """The leaders; where times under load count too, those of the finalists by both."""
        if not self._request.busy_share:
            return leaders
        if self._space.machine.effective.cpu_count == 1:
            self._shop.observer(
                Event("note", "this machine has one CPU: the neighbour takes half of it from everything")
            )
        return self.finals.run(baseline.config, leaders, lambda config: config in self.finder.ledger)

    @contextmanager
    def _beside(self, config: Config) -> Iterator[None]:
        """A busy neighbour on the last of the CPUs that a configuration uses."""
        machine = self._space.machine
        cpus = placement.affinity(config, machine) or machine.effective.cpus
        with Neighbour(cpus[-1]) as neighbour:
            self._bench.neighbour = neighbour
            try:
                yield
            finally:
                self._bench.neighbour = None

    @property
    def _pairing(self) -> Pairing | None:
        if not self._request.busy_share:
            return None
        return Pairing(self.finals.runner, self.finals.value, self.finals.plan)

    def _setting(self) -> dict[str, object]:
        """What pairs have in common; those beside the neighbour are worth another number."""
        setting = self._shop.setting(self.runner.conditions)
        return setting | ({"busy_share": self._request.busy_share} if self._request.busy_share else {})

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
        found = Outcome(
            baseline=baseline.config,
            best=decided.best,
            runners_up=tuple(e for e in leaders if e.config not in (decided.best, baseline.config)),
            confirmation=decided.confirmation,
            comparison_id=decided.comparison_id,
            conditions=self.runner.conditions,
            throttling=environment.throttling(self._before, environment.now(self._shop.machine)),
            busy_share=self._request.busy_share,
            dropped_rounds=self.runner.dropped,
            elapsed_s=self._budget.elapsed_s,
            ended=self.finder.ended,
            default_failure=self.finder.default_failure,
            known={config: self.gauge.metrics(config) for config in self.gauge.configs},
            default_unkept=self.unkept(baseline.config),
            unconfirmed=decided.unconfirmed or self._untried(decided),
            front=tuple((e.config, self._by_short_rounds(e)) for e in self.finder.front()),
            policies=tuple(self.policies.tried),
            engines=self.finder.of_each_engine() if len(self._space.engines) > 1 else (),
            pareto=self._pareto() if len(self._space.engines) > 1 else (),
            nearest=nearest(
                self._request.limits,
                (
                    (config, {**self.known(config), **quality_metrics(self.judge.known(config))})
                    for config in self.gauge.configs
                    if not self.judge.misses_level(config)
                ),
            ),
        )
        return replace(found, reference=self._reference(found.published))

    def _pareto(self) -> tuple[tuple[Config, Metrics], ...]:
        """What nothing betters in speed, memory and quality at once, the fastest first."""
        known = [
            (estimate, metrics, (estimate.cost, memory, divergence))
            for estimate in self.finder.feasible()
            if (memory := (metrics := self._by_short_rounds(estimate)).get("peak_rss_mib")) is not None
            and (divergence := quality_metrics(self.judge.known(estimate.config)).get("kl_divergence"))
            is not None
        ]
        standing = pareto_front([values for *_, values in known], ("minimize",) * 3)
        return tuple((known[place][0].config, known[place][1]) for place in sorted(standing))

    def _reference(self, published: Config) -> tuple[Config, float] | None:
        """The reference engine as it comes, and its cost over that of the answer; None where not measured."""
        if REFERENCE not in (part.engine.name for part in self._space.engines):
            return None
        config = self._space.default(REFERENCE)
        own, answer = (self.finder.ledger.estimate(one) for one in (config, published))
        return (config, own.cost / answer.cost) if own and answer else None

    def _by_short_rounds(self, estimate: Estimate) -> Metrics:
        """The metrics of a configuration by the search's own rounds, so that all of a front have the same."""
        predicted = predictions(self._shop.workload, estimate.ttft_ms, estimate.itl_ms)
        return {**self.gauge.metrics(estimate.config), **predicted}

    def _untried(self, decided: Decided) -> str | None:
        """Why it means nothing that the default leads: there was no time for anything else."""
        if decided.confirmation is None and len(self.finder.ledger) <= 1 and self._request.trials is None:
            what = "the default" if self._request.command is None else "your command"
            return f"only {what} could be measured in the time before the confirmation"
        return None

    def _shown(self, config: Config) -> Metrics:
        return metrics_of(self._shop, config, self.runner.conditions, self.gauge.metrics(config))

    def _lacks_samples(self, config: Config) -> bool:
        return any(is_unearned(limit, self._shown(config)) for limit in self._request.limits)
