"""Ways to search a landscape: cputune's own and those it is compared with, each as a trace of advice."""

from __future__ import annotations

import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import optuna
from optuna.distributions import CategoricalDistribution

from profiles.vocabulary import Config, RoundSamples, Setting, TrialStatus
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.replay import ReplayRunner, replay_judge
from tests.support.surface import FakeClock
from tuner.errors import WorkerError
from tuner.measurement.measurement import Measurement
from tuner.search.budget import Budget
from tuner.search.objectives import cost, objective_of, predict
from tuner.search.phases import phase_times
from tuner.search.sampler import ENGINE, distributions, parameters
from tuner.search.search import Search
from tuner.search.space import VARIANT, Space

DRAWS_EACH = 20
"""So many for each combination there is; then chance will hardly show another one."""


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
    return searched(land, land.space, seconds, seed)


def searched(land: Landscape, space: Space, seconds: float, seed: int) -> Trace:
    """The product's search over a part of the landscape's space; quality is judged as over all of it."""
    clock = FakeClock()
    default = _default(space)
    trace = Trace([(0.0, default)])

    def watch() -> None:
        if search.incumbent is not None:
            trace.add(clock.now_s, search.incumbent.config)

    search = Search(
        space,
        objective_of(space.workload),
        runner=ReplayRunner(land, clock, seed=seed, watch=watch),
        recorder=NoRecorder(),
        judge=replay_judge(land, _spend(clock)),
        digest_of=lambda engine, label: f"{engine}/{label}",
        budget=Budget.begin(clock, seconds),
        trials=None,
        seed=seed,
        observer=lambda _: watch(),
    )
    for leader in search.run(default)[:1]:
        trace.add(clock.now_s, leader.config)
    return trace


def tpe(land: Landscape, seconds: float, seed: int) -> Trace:
    """Optuna's TPE alone, multivariate and grouped: one round of whole configurations, the default first.

    The engine is a parameter, and each engine's settings are asked for where it was chosen. What is known to
    fail or to miss the quality level is told as infeasible, and not measured.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(multivariate=True, group=True, seed=seed)
    study = optuna.create_study(sampler=sampler)
    run, space = _Run(land, seed), land.space
    choices = {
        name: cast("dict[str, CategoricalDistribution]", distributions(space, space.default(name)))
        for name in (part.engine.name for part in space.engines)
    }

    def tell(config: Config, value: float | None) -> None:
        feasible = value is not None and not run.judge.known_bad(config)
        study.add_trial(
            optuna.trial.create_trial(
                value=math.inf if value is None else value,
                params=parameters(space, config),
                distributions=dict(choices[config.engine]),
                constraints={"feasible": 0.0 if feasible else 1.0},
            )
        )

    tell(run.default, run.default_cost)
    while run.clock.now_s < seconds:
        asked = study.ask()
        engine = str(asked.suggest_categorical(ENGINE, [part.engine.name for part in space.engines]))
        settings: dict[str, Setting] = {
            name.partition("/")[2]: cast("Setting", asked.suggest_categorical(name, distribution.choices))
            for name, distribution in choices[engine].items()
            if name != ENGINE
        }
        config = space.make(engine, str(settings.pop(VARIANT)), settings)
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
        if config is not None:
            tell(config, None if run.is_known_bad(config) else run.measure(config))
    return run.trace


def draws(land: Landscape, seconds: float, seed: int) -> Trace:
    """Random configurations, one round each, none twice, and none that is known to miss the quality level."""
    run = _Run(land, seed)
    rng = random.Random(seed)
    for _ in range(DRAWS_EACH * land.space.combinations):
        if run.clock.now_s >= seconds:
            break
        config = land.space.draw(rng)
        if config is not None and config not in run.measured and not run.is_known_bad(config):
            run.measure(config)
    return run.trace


def by_hand(land: Landscape, seconds: float, seed: int) -> Trace:
    """One setting at a time from the default, each value once, the best kept; again until nothing changes.

    Of several engines that one is tuned whose default is the fastest.
    """
    run = _Run(land, seed)
    for part in land.space.engines[1:]:
        if run.clock.now_s < seconds:
            run.measure(land.space.default(part.engine.name))
    began_at: Config | None = None
    while began_at != run.best:
        began_at = run.best
        for change in _steps(land, began_at.engine):
            if run.clock.now_s >= seconds:
                break
            settings = {**run.best.as_dict(), **change}
            variant = str(settings.pop(VARIANT, run.best.variant))
            moved = land.space.make(run.best.engine, variant, settings)
            if moved is not None and moved not in run.measured and not run.is_known_bad(moved):
                run.measure(moved)
    return run.trace


def grid(land: Landscape, seconds: float, seed: int) -> Trace:
    """The default, then every configuration once, those that share a process, a load and a context one after
    another."""
    run = _Run(land, seed)
    for part in land.space.engines:
        ordered = sorted(part.dimensions, key=lambda d: -d.scope)
        for variant in part.variants:
            for values in itertools.product(*(d.values for d in ordered)):
                if run.clock.now_s >= seconds:
                    return run.trace
                settings = dict(zip((d.name for d in ordered), values, strict=True))
                config = land.space.make(part.engine.name, variant, settings)
                if config is not None and config not in run.measured:
                    run.measure(config)
    return run.trace


STRATEGIES: Mapping[str, Strategy] = {
    "cputune": cputune,
    "tpe": tpe,
    "random": draws,
    "by hand": by_hand,
    "grid": grid,
}


class _Run:
    """Whole configurations measured one round at a time, the default first; the best feasible one is the
    advice."""

    def __init__(self, land: Landscape, seed: int) -> None:
        self.clock = FakeClock()
        self.judge = replay_judge(land, _spend(self.clock))
        self.measured: set[Config] = set()
        self.failed: set[Config] = set()
        self.default = self.best = _default(land.space)
        self.trace = Trace([(0.0, self.default)])
        self._best_cost = math.inf
        self._runner = ReplayRunner(land, self.clock, seed=seed)
        self._workload = land.space.workload
        self._objective = objective_of(self._workload)
        self.default_cost = self.measure(self.default)

    def is_known_bad(self, config: Config) -> bool:
        """Whether it failed, or was judged and misses the quality level."""
        return config in self.failed or self.judge.known_bad(config)

    def measure(self, config: Config) -> float | None:
        """The cost that one more round of it says; None where it fails."""
        self.measured.add(config)
        try:
            (samples,) = self._runner.measure(config, rounds=1).rounds
        except WorkerError:
            self.failed.add(config)
            return None
        ttft_ms, itl_ms = phase_times(samples, self._workload)
        assert ttft_ms is not None
        assert itl_ms is not None
        found = cost(self._objective, predict(self._objective, self._workload, ttft_ms, itl_ms))
        if found < self._best_cost and self.judge.feasible(config):
            self._best_cost, self.best = found, config
            self.trace.add(self.clock.now_s, config)
        return found


def _steps(land: Landscape, engine: str) -> Iterator[Mapping[str, Setting]]:
    part = land.space.part(engine)
    yield from ({VARIANT: variant} for variant in part.variants)
    for dimension in part.dimensions:
        yield from ({dimension.name: value} for value in dimension.values)


def _default(space: Space) -> Config:
    return space.default(space.engines[0].engine.name)


def _spend(clock: FakeClock) -> Callable[[float], None]:
    def spend(seconds: float) -> None:
        clock.now_s += seconds

    return spend
