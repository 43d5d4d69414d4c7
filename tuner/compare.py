"""The flow of a comparison: two configurations side by side in fresh process pairs, with a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from probes.machine import probe
from profiles.records import CHECK_SPACE, COMPARISON_SPACE, Conditions, StudyRecord, StudySpec, StudyStatus
from profiles.store import Store, owner_token
from profiles.vocabulary import (
    QUALITY_LEVELS,
    WORKLOADS,
    Config,
    Interval,
    Objective,
    QualityLevel,
    RoundSamples,
    Workload,
)
from tuner.clock import monotonic_s
from tuner.errors import NothingFeasibleError, WorkerError
from tuner.events import Event, Observer
from tuner.from_command import source_of
from tuner.home import Home
from tuner.measured import metrics_of, summary
from tuner.measurement.isolation import Deadlines
from tuner.measurement.looks import LOOKS
from tuner.measurement.measurement import Measurement
from tuner.measurement.statistics import Verdict, log_ratios, look_interval, pairs_to_resolve, verdict
from tuner.opening import store_to_write
from tuner.request import SearchRequest
from tuner.search.budget import Budget, Clock
from tuner.search.finish import open_comparison
from tuner.search.judge import quality_metrics
from tuner.search.ledger import Estimate
from tuner.search.load import LoadAwareRunner
from tuner.search.objectives import cost, measured_value, objective_of, predict
from tuner.search.pairs import Sides, Values, plan_pairs, run_pairs
from tuner.search.ports import Runner
from tuner.setup import build_space, open_workshop
from tuner.sides import Side, configuration, known, read_side
from tuner.tune import ended_well, turn_to_measure
from tuner.workshop import Workshop

DEFAULT_BUDGET_S = 120.0
GRACE_S = 10.0
"""What a round that runs may take beyond the budget before its worker is ended."""
FEWEST_FOR_A_VERDICT = 7
"""The interval of seven pairs is one of 98.4 %; that of six, of 96.9 %, would name a winner of two equals too
often."""
PATIENT = Deadlines(least_run_s=60.0, hopeless_s=300.0)
"""A side may be slow, that is what is asked: beside a neighbour a round takes many times as long."""
Found = tuple[Interval, Verdict]


@dataclass(frozen=True)
class CompareRequest:
    """One comparison: `a` and `b` are default, best, a profile's id, a file or a llama-server command.

    Without a model or a workload those of the first profile that is named by its id are taken, else a
    command's model, else the only model and chat. `engines` are those that default and best may stand for,
    None: the installed ones. `pairs` are run exactly, and none from before are taken; None: as many as show
    something. A check is a daemon's own, which no history lists.
    """

    a: str
    b: str
    model: str | None = None
    workload: Workload | None = None
    quality: QualityLevel = QUALITY_LEVELS["near-lossless"]
    engines: tuple[str, ...] | None = None
    budget_s: float = DEFAULT_BUDGET_S
    pairs: int | None = None
    is_check: bool = False
    wait: bool = False
    storage: str | None = None


def compare(
    request: CompareRequest, *, home: Home, observer: Observer, clock: Clock = monotonic_s
) -> dict[str, Any]:
    """Compare two configurations on this machine: the document of `compare --json`.

    Raises CputuneError subclasses and KeyboardInterrupt; the pairs that were finished are in the store then.
    """
    machine = probe()
    with store_to_write(home, request.storage, observer) as store:
        sides = read_side(store, request.a), read_side(store, request.b)
        search = as_search(store, request, sides)
        with closing(open_workshop(search, machine, store, home, observer)) as shop:
            space = build_space(search, shop)
            a, b = (known(side, request.quality, shop) for side in sides)
            configs = configuration(a, shop, space), configuration(b, shop, space)
            if configs[0] == configs[1]:
                observer(Event("note", f"{a.name} and {b.name} are the same configuration: it meets itself"))
            with turn_to_measure(home, request.wait, observer):
                budget = Budget.begin(clock, request.budget_s)
                study = open_record(shop, request)
                with ended_well(store, study):
                    return measure(shop, study, (a, b), configs, budget, request.pairs)


def as_search(store: Store, request: CompareRequest, sides: tuple[Side, Side]) -> SearchRequest:
    """The question in whose terms both sides are compared."""
    profile = next((side.profile for side in sides if side.profile is not None), None)
    model, workload = request.model, request.workload
    if profile is not None:
        known = {record.info.digest: record.name for record in store.models()}
        model = model or known.get(profile.model_digest)
        workload = workload or profile.workload
    model = model or next((source_of(side.command) for side in sides if side.command is not None), None)
    named = tuple(dict.fromkeys(side.engine for side in sides if side.engine is not None))
    engines = request.engines
    if all(side.engine is not None for side in sides):
        engines = named
    elif named:
        from tuner.engines import default_names

        engines = tuple(dict.fromkeys((*(request.engines or default_names()), *named)))
    return SearchRequest(
        model, workload or WORKLOADS["chat"], request.quality, budget_s=request.budget_s, engines=engines
    )


def open_record(shop: Workshop, request: CompareRequest) -> StudyRecord:
    """The study that the machine's comparisons of this model and workload are filed under."""
    space = CHECK_SPACE if request.is_check else COMPARISON_SPACE
    name = f"{space}-{shop.model.name}-{shop.workload.name}"
    spec = StudySpec(
        fingerprint=shop.machine.fingerprint,
        model_digest=shop.model.digest,
        workload=shop.workload,
        engines=tuple(shop.available),
        space_hash=space,
        storage_name=f"{name}-{shop.machine.fingerprint[:6]}",
        name=name,
        objectives=(objective_of(shop.workload),),
        quality_level=request.quality.name,
        request={"a": request.a, "b": request.b},
        environment={"kernel": shop.machine.kernel},
        engine_builds={engine: shop.build(engine) for engine in shop.available},
    )
    return shop.store.open_study(spec, owner_token())


def measure(
    shop: Workshop,
    study: StudyRecord,
    sides: tuple[Side, Side],
    configs: tuple[Config, Config],
    budget: Budget,
    pairs: int | None = None,
) -> dict[str, Any]:
    """Run the pairs and say what they show."""
    objective = objective_of(shop.workload)
    rounds: tuple[list[RoundSamples], list[RoundSamples]] = ([], [])
    setting = shop.setting("quiet")
    if pairs is None:
        record, earlier = open_comparison(shop.store, study.id, *configs, objective.metric, setting)
    else:
        record, earlier = shop.store.start_comparison(study.id, *configs, objective.metric), ()

    def keep(values: Values, measured: Sides) -> None:
        for side, config in enumerate(configs):
            rounds[side].extend(measured[side].rounds)
            shop.store.add_rounds(shop.identify(config, runner.conditions), measured[side].rounds)
        shop.store.add_pair(record.id, [values[0]], [values[1]], facts=shop.setting(runner.conditions))

    shop.remaining_s = lambda: budget.left_s + GRACE_S
    with shop.bench(seed=0, deadlines=PATIENT) as bench:
        runner = LoadAwareRunner(bench, observer=shop.observer)
        shop.observer(Event("stage", "a first look at either side"))
        looks = [
            first_look(runner, f"{letter} ({side.name})", config, objective, shop.workload)
            for letter, side, config in zip("ab", sides, configs, strict=True)
        ]
        startup_s = sum(seconds for _, seconds in looks) / 2
        plan = plan_pairs(looks[0][0], looks[1][0], startup_s, budget.total_s, shop.workload)
        if pairs is not None:
            plan = replace(plan, longest_pairs=pairs)
        shop.observer(Event("stage", f"pairs of fresh processes, full rounds in each: {plan.rounds}"))
        try:
            decision = run_pairs(
                runner,
                configs,
                lambda samples: measured_value(objective, shop.workload, samples),
                lambda values: log_ratios(values[:1], values[1:])[0],
                lambda logs, final: decide(logs, objective, final=final) if final or not pairs else None,
                plan=plan,
                budget=budget,
                fewest=pairs or 1,
                earlier=earlier,
                keep=keep,
                observer=shop.observer,
            )
        except WorkerError as failure:
            raise NothingFeasibleError(
                f"too few pairs could be measured: {failure.reason}; a longer --budget may help"
            ) from failure
    interval, says = decision.found
    shop.store.finish_comparison(record.id, interval, says)
    resolved = says != "not resolved"
    shop.store.finish_study(study.id, StudyStatus.CONFIRMED if resolved else StudyStatus.PROVISIONAL)
    logs = [log_ratios(values[:1], values[1:])[0] for values in decision.pairs]
    last = decision.last or (None, None)
    a, b = (result(shop, sides[n], configs[n], rounds[n], last[n], runner.conditions) for n in range(2))
    return {
        "comparison": record.id,
        "metric": objective.metric,
        "model": {"name": shop.model.name, "digest": shop.model.digest, "source": shop.source.spec},
        "workload": shop.workload.to_json(),
        "conditions": runner.conditions,
        "a": a,
        "b": b,
        "ratio": asdict(interval),
        "verdict": says,
        "pairs": len(decision.pairs),
        "values": [list(pair) for pair in decision.pairs],
        "pairs_needed": None if resolved else pairs_to_resolve(logs),
        "identical": configs[0] == configs[1],
        "dropped_rounds": runner.dropped,
        "elapsed_s": round(budget.elapsed_s, 1),
    }


def first_look(
    runner: Runner, name: str, config: Config, objective: Objective, workload: Workload
) -> tuple[Estimate, float]:
    """One short round: an estimate to plan by, and the seconds that starting took.

    Raises NothingFeasibleError where the configuration does not run.
    """
    try:
        measured = runner.measure(config, rounds=1, fresh=True)
    except WorkerError as failure:
        raise NothingFeasibleError(f"{name} does not run: {failure.reason}") from failure
    ttft_ms = median([value for r in measured.rounds for value in r.ttft_ms])
    itl_ms = median([gap for r in measured.rounds for stream in r.gaps_ms for gap in stream])
    value = predict(objective, workload, ttft_ms, itl_ms)
    estimate = Estimate(config, value, cost(objective, value), ttft_ms, itl_ms, 1)
    return estimate, measured.seconds - measured.generation_seconds


def decide(log_ratio_values: Sequence[float], objective: Objective, *, final: bool) -> Found | None:
    """The ratio with its verdict; None while more pairs are needed.

    The looks share an error as a confirmation's do. Below seven pairs nothing is shown.
    """
    if len(log_ratio_values) not in LOOKS and not final:
        return None
    interval = look_interval(log_ratio_values)
    says: Verdict = verdict(interval, direction=objective.direction)
    if len(log_ratio_values) < FEWEST_FOR_A_VERDICT:
        says = "not resolved"
    return (interval, says) if final or says != "not resolved" else None


def result(
    shop: Workshop,
    side: Side,
    config: Config,
    rounds: Sequence[RoundSamples],
    last: Measurement | None,
    conditions: Conditions,
) -> dict[str, Any]:
    """One RESULT, from the rounds of this comparison where it ran any."""
    quality = side.profile.quality if side.profile is not None else None
    metrics = summary(shop, config, rounds, last) if rounds else metrics_of(shop, config, conditions, {})
    return {
        "name": side.name,
        "engine": config.engine,
        "variant": config.variant,
        "bits_per_weight": shop.variant(config.engine, config.variant).bits_per_weight,
        "config": config.as_dict(),
        "metrics": metrics | quality_metrics(quality),
    }
