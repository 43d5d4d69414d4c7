"""The flow of a search, from probing the machine to publishing a profile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from probes.machine import Machine, probe
from profiles.records import StudyRecord, StudyStatus
from profiles.store import Store
from profiles.vocabulary import Config
from tuner.errors import BusyError, NothingFeasibleError
from tuner.events import Event, Observer
from tuner.home import Home
from tuner.measurement.lock import measuring_lock
from tuner.narrowing import refusal_of
from tuner.publish import Outcome, known_answer, metrics_of, publish, trial_metrics
from tuner.request import SearchRequest
from tuner.search.budget import Budget, Clock
from tuner.search.finish import Finish
from tuner.search.judge import QualityJudge, quality_metrics
from tuner.search.limits import Gauge, Metrics, is_unearned, nearest
from tuner.search.load import LoadAwareRunner
from tuner.search.objectives import objective_of, predictions
from tuner.search.record import StoreRecorder, refresh_index
from tuner.search.search import Search
from tuner.search.space import Space
from tuner.setup import build_space, open_study, open_workshop
from tuner.workshop import Workshop

GRACE_S = 5.0
"""What a round that runs may take beyond the budget before its worker is ended."""


def tune(
    request: SearchRequest, *, home: Home, observer: Observer, clock: Clock = time.monotonic
) -> dict[str, Any]:
    """Answer a request, from what is published already or by searching: the document of `search --json`.

    Raises CputuneError subclasses and KeyboardInterrupt; what was finished before is in the store then.
    """
    budget = Budget.begin(clock, request.budget_s)
    machine = probe()
    with (
        Store.open(request.storage or home.database) as store,
        closing(open_workshop(request, machine, store, home, observer)) as shop,
    ):
        space = build_space(request, shop)
        if not request.bounded and not request.fresh:
            known = known_answer(shop, space, request)
            if known is not None:
                return known
        with turn_to_measure(home, request.wait, observer) as waited:
            if waited:
                budget = Budget.begin(clock, request.budget_s)
            observer(Event("note", introduction(machine, shop)))
            study = open_study(request, shop, space)
            with ended_well(store, study):
                return search(request, shop, space, study, budget)


def search(
    request: SearchRequest, shop: Workshop, space: Space, study: StudyRecord, budget: Budget
) -> dict[str, Any]:
    """Measure the baseline, search, judge, confirm and publish within the budget."""
    objective = objective_of(shop.workload)
    with shop.bench(seed=request.seed, remaining_s=lambda: budget.left_s + GRACE_S) as bench:
        runner = LoadAwareRunner(bench, observer=shop.observer)
        gauge = Gauge(runner, partial(trial_metrics, shop))
        filed = shop.filing(lambda: runner.conditions)
        recorder = StoreRecorder(shop.store, study, identify=filed, summarise=partial(trial_metrics, shop))

        def known(config: Config) -> Metrics:
            estimate = finder.ledger.estimate(config)
            predicted = predictions(shop.workload, estimate.ttft_ms, estimate.itl_ms) if estimate else {}
            return {**predicted, **gauge.metrics(config)}

        def published(config: Config) -> Metrics:
            return metrics_of(shop, config, runner.conditions, gauge.metrics(config))

        def unkept(config: Config) -> tuple[str, ...]:
            return judge.unkept(config, published(config))

        def lacks_samples(config: Config) -> bool:
            return any(is_unearned(limit, published(config)) for limit in request.limits)

        judge = QualityJudge(
            space,
            request.quality,
            shop.quality_measure(),
            observer=shop.observer,
            limits=request.limits,
            metrics_of=known,
            refuses=refusal_of(request, shop, space),
        )
        finder = Search(
            space,
            objective,
            runner=gauge,
            recorder=recorder,
            judge=judge,
            digest_of=lambda engine, label: shop.variant(engine, label).digest,
            budget=budget,
            trials=request.trials,
            seed=request.seed,
            observer=shop.observer,
        )
        for trial, rounds in recorder.earlier():
            gauge.remember(trial.config, trial.metrics)
            finder.remember(trial.config, rounds, trial.status)
        leaders = finder.run(space.default(next(iter(shop.available))))
        baseline = finder.baseline_estimate()
        finish = Finish(
            store=shop.store,
            study=study,
            runner=gauge,
            objective=objective,
            workload=shop.workload,
            identify=filed,
            budget=budget,
            observer=shop.observer,
            unkept=unkept,
            lacks_samples=lacks_samples,
        )
        decided = finish.first_that_runs(baseline, leaders, finder.startup_s)
        default_unkept = unkept(baseline.config)
    for config in (decided.best, baseline.config):
        judge.quality(config)
    outcome = Outcome(
        baseline=baseline.config,
        best=decided.best,
        runners_up=tuple(e for e in leaders if e.config not in (decided.best, baseline.config)),
        confirmation=decided.confirmation,
        comparison_id=decided.comparison_id,
        conditions=runner.conditions,
        dropped_rounds=runner.dropped,
        elapsed_s=budget.elapsed_s,
        default_failure=finder.default_failure,
        known={config: gauge.metrics(config) for config in gauge.configs},
        default_unkept=default_unkept,
        nearest=nearest(
            request.limits,
            (
                (config, {**known(config), **quality_metrics(judge.known(config))})
                for config in gauge.configs
                if not judge.misses_level(config)
            ),
        ),
    )
    refresh_index(shop.store, study, space)
    return publish(shop, judge, request, study, outcome)


@contextmanager
def turn_to_measure(home: Home, wait: bool, observer: Observer) -> Iterator[bool]:
    """Hold the measuring lock; yields whether another process had it before. Raises BusyError."""
    with ExitStack() as stack:
        waited = False
        try:
            stack.enter_context(measuring_lock(home.lock))
        except BusyError as busy:
            if not wait:
                raise
            waited = True
            observer(Event("note", f"{str(busy).partition(':')[0]}: waiting for it to end"))
            stack.enter_context(measuring_lock(home.lock, wait=True))
        yield waited


@contextmanager
def ended_well(store: Store, study: StudyRecord) -> Iterator[None]:
    """Leave no study running, whatever ends the search."""
    try:
        yield
    except NothingFeasibleError:
        store.finish_study(study.id, StudyStatus.INFEASIBLE)
        raise
    except KeyboardInterrupt:
        store.finish_study(study.id, StudyStatus.INTERRUPTED)
        raise
    except BaseException:
        store.finish_study(study.id, StudyStatus.FAILED)
        raise


def introduction(machine: Machine, shop: Workshop) -> str:
    """The machine, the model and the engines in one line."""
    effective = machine.effective
    limit = f" (limited by {effective.limited_by})" if effective.limited_by != "none" else ""
    memory = f", {effective.memory_bytes / 2**30:.1f} GiB available" if effective.memory_bytes else ""
    engines = ", ".join(f"{name} {found.version}" for name, found in shop.available.items())
    return (
        f"{machine.model_name or machine.arch}: {effective.cpu_count} CPUs{limit}{memory};"
        f" {shop.model.name} ({shop.model.bits_per_weight:.1f} bits/weight); {engines}"
    )
