"""The last stage: settle a tie, then confirm the leaders against the default, the first that runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from profiles.records import ComparisonRecord, StudyRecord
from profiles.records import Measurement as MeasurementKey
from profiles.store import Store
from profiles.vocabulary import Config, Objective, RoundSamples, Workload
from tuner.errors import WorkerError
from tuner.events import Event, Observer
from tuner.measurement.measurement import Measurement
from tuner.search.background import file_rounds
from tuner.search.budget import Budget
from tuner.search.confirm import Confirmation, Pair, Side, confirm, plan
from tuner.search.ledger import Estimate
from tuner.search.objectives import cost, measured_value
from tuner.search.pairs import Plan, Values, run_pairs
from tuner.search.ports import Runner
from tuner.search.tie import affordable, cheaper_rival, decide_tie

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
class Pairing:
    """How pairs run: on which runner, what the rounds of one process are worth, how long a pair takes.

    `plan` takes the estimates of both sides and the seconds that starting a process takes.
    """

    runner: Runner
    value: Callable[[Sequence[RoundSamples]], float]
    plan: Callable[[Estimate, Estimate, float], Plan]


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
    pairing: Pairing | None = None
    """None: on `runner`, by the objective as it was measured."""
    cheaper: Callable[[Config, Config], bool] = lambda *_: False
    """Whether the first of two configurations needs less (`tie.is_cheaper`)."""

    def first_that_runs(self, baseline: Estimate, leaders: Sequence[Estimate], startup_s: float) -> Decided:
        """Confirm the best leader; the next one where its processes fail or where it is not shown to keep a
        limit; the default when none is left.

        Where the default itself may not be published, the best that may is, even if it is slower.
        """
        leaders = self._begun(baseline, self._settled(leaders, startup_s))
        self.observer(Event("stage", "confirmation"))
        pairing = self._pairing
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
                pairing.runner,
                {"default": baseline.config, "best": leader.config},
                self.objective,
                pairing.value,
                plan=pairing.plan(baseline, leader, startup_s),
                budget=self.budget,
                earlier=[Pair(*values) for values in earlier],
                keep=partial(self._keep_pair, comparison),
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

    def _begun(self, baseline: Estimate, leaders: Sequence[Estimate]) -> Sequence[Estimate]:
        """The leaders; where the default leads, what an interrupted confirmation had begun to confirm goes
        before it: its pairs are stronger evidence than the ranking."""
        if not leaders or leaders[0].config != baseline.config:
            return leaders
        for known in self.store.comparisons(self.study.id):
            rival = known.config_b
            same = (known.config_a, known.metric) == (baseline.config, self.objective.metric)
            if same and rival != baseline.config and known.finished_at is None and self.store.pairs(known.id):
                estimate = next((e for e in leaders if e.config == rival), replace(baseline, config=rival))
                return [estimate, *(e for e in leaders if e.config != rival)]
        return leaders

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

    @property
    def _pairing(self) -> Pairing:
        return self.pairing or Pairing(
            self.runner,
            lambda rounds: measured_value(self.objective, self.workload, rounds),
            lambda a, b, startup_s: plan(a, b, startup_s, self.budget.total_s, self.workload),
        )

    def _settled(self, leaders: Sequence[Estimate], startup_s: float) -> Sequence[Estimate]:
        """The leaders, a cheaper one before the first where pairs show it to be no worse.

        Only where there is time enough: nothing is taken from the confirmation.
        """
        rival = cheaper_rival(leaders, self.cheaper) if leaders else None
        if rival is None:
            return leaders
        first, pairing = leaders[0], self._pairing
        planned = pairing.plan(first, rival, startup_s)
        if not affordable(self.budget.left_s, planned.pair_s):
            return leaders
        self.observer(Event("stage", "a tie: is the cheaper one no worse?"))
        comparison, earlier = open_comparison(
            self.store, self.study.id, first.config, rival.config, self.objective.metric, self.setting()
        )
        try:
            shown = run_pairs(
                pairing.runner,
                (first.config, rival.config),
                pairing.value,
                self._log_cost_ratio,
                decide_tie,
                plan=planned,
                budget=self.budget,
                earlier=earlier,
                keep=lambda values, sides: self._keep(comparison, values, sides),
                observer=self.observer,
            ).found
        except WorkerError:
            self.store.finish_comparison(comparison.id, None, "failed")
            return leaders
        self.store.finish_comparison(comparison.id, None, "no worse" if shown else "not shown")
        if not shown:
            return leaders
        self.observer(
            Event("note", "a cheaper configuration is shown to be no worse: it takes the first place")
        )
        return [rival, *(leader for leader in leaders if leader.config != rival.config)]

    def _log_cost_ratio(self, values: Values) -> float:
        """Of the second side's over the first's."""
        first, second = (cost(self.objective, value) for value in values)
        return math.log(second / first)

    def _keep_pair(
        self, comparison: ComparisonRecord, pair: Pair, measured: Mapping[Side, Measurement]
    ) -> None:
        self._keep(comparison, (pair.default, pair.best), (measured["default"], measured["best"]))

    def _keep(self, comparison: ComparisonRecord, values: Values, sides: Sequence[Measurement]) -> None:
        for config, measured in zip((comparison.config_a, comparison.config_b), sides, strict=True):
            file_rounds(self.store, self.identify(config), measured.rounds)
        self.store.add_pair(comparison.id, values[:1], values[1:], facts=self.setting())


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
