"""Ways to search a landscape: cputune's own and those it is compared with, each as a trace of advice."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import optuna

from profiles.vocabulary import Config, RoundSamples, Setting, TrialStatus
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.replay import SHORT_TOKENS, ReplayRunner, Truth, replay_judge
from tests.support.surface import FakeClock
from tuner.engines.base import Phase, Scope
from tuner.measurement.measurement import Measurement
from tuner.search.budget import Budget
from tuner.search.ledger import Ledger
from tuner.search.objectives import objective_of
from tuner.search.sampler import distributions, parameters
from tuner.search.search import Search
from tuner.search.space import VARIANT


@dataclass
class Trace:
    """What would be recommended from which second on; the default before anything is measured."""

    points: list[tuple[float, Config]] = field(default_factory=list)

    def add(self, seconds: float, config: Config) -> None:
        if not self.points or self.points[-1][1] != config:
            self.points.append((seconds, config))

    def at(self, seconds: float) -> Config:
        """The advice at a time."""
        return [config for when, config in self.points if when <= seconds][-1]


Strategy = Callable[[Landscape, float, int], Trace]
"""Searches a landscape for some seconds with a seed."""


class NoRecorder:
    """Keeps nothing."""

    def __init__(self) -> None:
        self._number = 0

    def begin(self, config: Config) -> int:
        self._number += 1
        return self._number

    def finish(
        self,
        trial: int,
        config: Config,
        status: TrialStatus,
        reason: str | None,
        value: float | None,
        measured: Measurement | None,
    ) -> None:
        pass

    def more_rounds(self, config: Config, rounds: tuple[RoundSamples, ...]) -> None:
        pass


def cputune(land: Landscape, seconds: float, seed: int) -> Trace:
    """The product's search in a budget of `seconds`: it keeps its share of them for confirming."""
    clock = FakeClock()
    default = _default(land)
    trace = Trace([(0.0, default)])

    def watch() -> None:
        if search.incumbent is not None:
            trace.add(clock.now_s, search.incumbent.config)

    search = Search(
        land.space,
        objective_of(land.space.workload),
        runner=ReplayRunner(land, clock, seed=seed, watch=watch),
        recorder=NoRecorder(),
        judge=replay_judge(land, _spend(clock)),
        digest_of=lambda engine, label: f"{engine}/{label}",
        budget=Budget.begin(clock, seconds),
        trials=None,
        seed=seed,
        observer=lambda _: watch(),
    )
    leaders = search.run(default)
    trace.add(clock.now_s, leaders[0].config)
    return trace


def tpe(land: Landscape, seconds: float, seed: int) -> Trace:
    """Optuna's TPE alone, multivariate and grouped: one round of whole configurations."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(multivariate=True, group=True, seed=seed)
    study = optuna.create_study(sampler=sampler)
    run = _Run(land, seed)
    space, part = land.space, land.space.engines[0]
    anchor = space.default(part.engine.name)
    choices = {
        name.partition("/")[2]: distribution
        for name, distribution in distributions(space, anchor).items()
        if "/" in name
    }
    while run.clock.now_s < seconds:
        asked = study.ask()
        settings: dict[str, Setting] = {
            name: cast(
                "Setting", asked.suggest_categorical(f"{part.engine.name}/{name}", distribution.choices)
            )
            for name, distribution in choices.items()
            if isinstance(distribution, optuna.distributions.CategoricalDistribution)
        }
        config = space.make(part.engine.name, str(settings.pop("variant")), settings)
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
        if config is None:
            continue
        value = run.measure(config)
        feasible = not run.judge.known_bad(config)
        study.add_trial(
            optuna.trial.create_trial(
                value=value,
                params=parameters(space, config),
                distributions=distributions(space, config),
                constraints={"feasible": 0.0 if feasible else 1.0},
            )
        )
    return run.trace


def draws(land: Landscape, seconds: float, seed: int) -> Trace:
    """Random configurations, one round each, none twice."""
    run = _Run(land, seed)
    rng = random.Random(seed)
    seen: set[Config] = set()
    while run.clock.now_s < seconds and len(seen) < land.space.combinations:
        config = land.space.draw(rng)
        if config is not None and config not in seen:
            seen.add(config)
            run.measure(config)
    return run.trace


def by_hand(land: Landscape, seconds: float, seed: int) -> Trace:
    """One setting at a time from the default, each value once, the best kept; again until nothing changes."""
    run = _Run(land, seed)
    here = _default(land)
    best = run.measure(here)
    changed = True
    while changed and run.clock.now_s < seconds:
        changed = False
        for change in _steps(land, here.engine):
            if run.clock.now_s >= seconds:
                break
            settings = {**here.as_dict(), **change}
            variant = str(settings.pop(VARIANT, here.variant))
            moved = land.space.make(here.engine, variant, settings)
            if moved is None or moved in run.measured or run.judge.known_bad(moved):
                continue
            value = run.measure(moved)
            if value < best and run.judge.feasible(moved):
                here, best, changed = moved, value, True
    return run.trace


def grid(land: Landscape, seconds: float, seed: int) -> Trace:
    """Every configuration once, those that share a process, a load and a context one after another."""
    run = _Run(land, seed)
    parts = land.space.engines
    for part in parts:
        ordered = sorted(part.dimensions, key=lambda d: -d.scope)
        for variant in part.variants:
            for values in itertools.product(*(d.values for d in ordered)):
                settings = dict(zip((d.name for d in ordered), values, strict=True))
                config = land.space.make(part.engine.name, variant, settings)
                if config is not None and config not in run.measured:
                    run.measure(config)
                    if run.clock.now_s >= seconds:
                        return run.trace
    return run.trace


STRATEGIES: Mapping[str, Strategy] = {
    "cputune": cputune,
    "tpe": tpe,
    "random": draws,
    "by hand": by_hand,
    "grid": grid,
}


class _Run:
    """Whole configurations measured one round at a time; the best feasible one is the advice."""

    def __init__(self, land: Landscape, seed: int) -> None:
        self.clock = FakeClock()
        self.judge = replay_judge(land, _spend(self.clock))
        self.measured: set[Config] = set()
        self.trace = Trace([(0.0, _default(land))])
        self._best: float | None = None
        self._runner = ReplayRunner(land, self.clock, seed=seed)
        self._space, self._objective = land.space, objective_of(land.space.workload)

    def measure(self, config: Config) -> float:
        """The cost that one more round of it says."""
        ledger = Ledger(self._space, self._objective)
        ledger.add(config, self._runner.measure(config, rounds=1).rounds)
        self.measured.add(config)
        found = ledger.estimate(config)
        assert found is not None
        if (self._best is None or found.cost < self._best) and self.judge.feasible(config):
            self._best = found.cost
            self.trace.add(self.clock.now_s, config)
        return found.cost


def grid_cost_s(land: Landscape) -> float:
    """Seconds of every canonical configuration once, one short round of both phases, switching least.

    Counted group by group, since a product of the phases' parts need not be listed.
    """
    space, truth_ms = land.space, Truth(land).phase_ms
    groups: dict[Config, dict[Phase, list[Config]]] = defaultdict(lambda: {phase: [] for phase in Phase})
    for phase, configs in land.wanted().items():
        for config in configs:
            if space.phase_part(config, phase) not in land.samples_ms[phase]:
                continue
            groups[space.shared_part(config)][phase].append(config)
    total_s = 0.0
    loaded: set[Config] = set()
    for found in groups.values():
        prefill, decode = found[Phase.PREFILL], found[Phase.DECODE]
        if not prefill or not decode:
            continue
        if not space.is_separable:
            decode = decode[:1]
        ttft_ms = sum(truth_ms(config, Phase.PREFILL) for config in prefill) * len(decode)
        gaps_ms = sum(truth_ms(config, Phase.DECODE) for config in decode) * (SHORT_TOKENS - 1) * len(prefill)
        by_context = {_coarser(land, config, Scope.RUN) for config in prefill}
        opened = {_coarser(land, config, Scope.CONTEXT) for config in prefill} - loaded
        loaded |= opened
        total_s += (ttft_ms + gaps_ms) / 1000
        total_s += len(prefill) * len(decode) * land.overhead(prefill[0], Scope.RUN)
        total_s += len(by_context) * land.overhead(prefill[0], Scope.CONTEXT)
        total_s += len(opened) * land.overhead(prefill[0], Scope.PROCESS)
    return total_s


def _coarser(land: Landscape, config: Config, most: Scope) -> Config:
    """The configuration without what can be switched within a scope."""
    return config.without(d.name for d in land.space.part(config.engine).dimensions if d.scope <= most)


def _steps(land: Landscape, engine: str) -> Iterator[dict[str, Setting]]:
    part = land.space.part(engine)
    yield from ({VARIANT: variant} for variant in part.variants)
    for dimension in part.dimensions:
        yield from ({dimension.name: value} for value in dimension.values)


def _default(land: Landscape) -> Config:
    return land.space.default(land.space.engines[0].engine.name)


def _spend(clock: FakeClock) -> Callable[[float], None]:
    def spend(seconds: float) -> None:
        clock.now_s += seconds

    return spend
