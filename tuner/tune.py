"""The flow of a search, from probing the machine to publishing a profile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from probes.machine import Machine, probe
from profiles.records import StudyRecord, StudyStatus
from profiles.store import Store
from tuner.beside import decode_ceiling, everyday
from tuner.clock import monotonic_s
from tuner.crew import Crew
from tuner.errors import BusyError, NothingFeasibleError
from tuner.events import Event, Observer
from tuner.from_command import notes, with_flags
from tuner.home import Home
from tuner.known import known_answer
from tuner.measurement.lock import measuring_lock
from tuner.opening import store_to_write
from tuner.outcome import Beside
from tuner.publish import publish
from tuner.request import SearchRequest
from tuner.search.budget import Budget, Clock
from tuner.search.record import refresh_index
from tuner.search.space import Space
from tuner.setup import build_space, open_study, open_workshop
from tuner.workshop import Workshop

GRACE_S = 5.0
"""What a round that runs may take beyond the budget before its worker is ended."""

LAST_WAITS = 0.5
"""Of the budget: what a process of the last pairs may take beyond it."""


def tune(
    request: SearchRequest, *, home: Home, observer: Observer, clock: Clock = monotonic_s
) -> dict[str, Any]:
    """Answer a request, from what is published already or by searching: the document of `search --json`.

    Raises CputuneError subclasses and KeyboardInterrupt; what was finished before is in the store then.
    """
    budget = Budget.begin(clock, request.budget_s)
    machine = probe()
    with (
        store_to_write(home, request.storage, observer) as store,
        closing(open_workshop(request, machine, store, home, observer)) as shop,
    ):
        space = build_space(request, shop)
        if not request.bounded and not request.fresh:
            known = known_answer(shop, space, request)
            if known is not None:
                return with_flags(known, request.command, shop, space.baseline)
        with turn_to_measure(home, request.wait, observer) as waited:
            if waited:
                budget = Budget.begin(clock, request.budget_s)
            observer(Event("note", introduction(machine, shop)))
            for line in notes(request.command, shop.workload, machine) if request.command else ():
                observer(Event("note", f"--from: {line}"))
            study = open_study(request, shop, space)
            with ended_well(store, study):
                found = search(request, shop, space, study, budget)
            return with_flags(found, request.command, shop, space.baseline)


def search(
    request: SearchRequest, shop: Workshop, space: Space, study: StudyRecord, budget: Budget
) -> dict[str, Any]:
    """Measure the baseline, search, judge, confirm and publish within the budget."""
    shop.remaining_s = lambda: budget.left_s + GRACE_S
    with shop.bench(seed=request.seed) as bench:
        crew = Crew(request, shop, space, study, bench, budget)
        shop.remaining_s = lambda: crew.finder.left_s + GRACE_S
        shop.making_s = lambda: crew.finder.making_s + GRACE_S
        leaders = crew.finder.run(space.baseline or space.default(next(iter(shop.available))))
        shop.making_s = lambda: math.inf
        baseline = crew.finder.baseline_estimate()
        leaders = crew.policies.around(crew.under_load(baseline, leaders), crew.finder.startup_s)
        # The fewest pairs are run whatever the budget says: even at its end a wait may take a part of it.
        shop.remaining_s = lambda: max(budget.left_s, LAST_WAITS * budget.total_s) + GRACE_S
        decided = crew.finish.first_that_runs(baseline, leaders, crew.finder.startup_s)
    shop.remaining_s = lambda: budget.left_s + GRACE_S
    for config in (decided.best, baseline.config):
        crew.judge.quality(config)
    outcome = crew.outcome(baseline, leaders, decided)
    beside = Beside(
        # What llama-cpp-python would do with nothing set says nothing to a user of llama-server.
        everyday=None
        if request.command
        else everyday(shop, baseline.config.engine, request.seed, outcome.conditions, budget),
        ceiling=decode_ceiling(shop, crew.finder.ledger, outcome.published, outcome.conditions),
    )
    document = publish(shop, crew.judge, request, study, outcome, beside)
    refresh_index(shop.store, shop.store.study(study.id), space)
    return document


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
