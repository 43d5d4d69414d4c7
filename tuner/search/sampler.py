"""Proposals for the next configuration: Optuna's TPE over the conditional space, without repeats."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import cast

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution

from profiles.vocabulary import Config, Setting
from tuner.search.space import ENUMERABLE, VARIANT, EngineSpace, Space

ENGINE = "engine"
SAMPLER_NAME = "tpe(multivariate, group)"
RANDOM_SHARE = 0.1
"""Of the proposals, so that no region is given up for one unlucky round."""
ASKS = 12
"""Repeats that TPE may propose in a row before a random unseen configuration is taken."""


def parameters(space: Space, config: Config) -> dict[str, Setting]:
    """The configuration as Optuna parameters: settings carry their engine's name."""
    named: dict[str, Setting] = {ENGINE: config.engine, f"{config.engine}/{VARIANT}": config.variant}
    known = space.part(config.engine).by_name
    return named | {f"{config.engine}/{name}": value for name, value in config.settings if name in known}


def distributions(space: Space, config: Config) -> dict[str, BaseDistribution]:
    """The distributions of `parameters`; a default outside the searched values is added to them."""
    part = space.part(config.engine)
    found: dict[str, BaseDistribution] = {
        ENGINE: CategoricalDistribution([p.engine.name for p in space.engines]),
        f"{config.engine}/{VARIANT}": CategoricalDistribution(labels(part, space.default(config.engine))),
    }
    for dimension in part.dimensions:
        found[f"{config.engine}/{dimension.name}"] = CategoricalDistribution(
            choices(space, config, dimension.name)
        )
    return found


def labels(part: EngineSpace, default: Config) -> tuple[str, ...]:
    """The variants; behind them the default's own where it was not asked for."""
    added = () if default.variant in part.variants else (default.variant,)
    return (*part.variants, *added)


def choices(space: Space, config: Config, name: str) -> tuple[Setting, ...]:
    """A dimension's values and, behind them, what the default and canonical forms add."""
    dimension = space.part(config.engine).by_name[name]
    default = space.default(config.engine).get(name)
    added = [value for value in (default,) if value is not None and value not in dimension.values]
    return (*dimension.values, *added)


class Proposer:
    """Asks TPE for configurations that were not tried and are not excluded."""

    def __init__(self, space: Space, *, seed: int, excluded: Callable[[Config], bool]) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._excluded = excluded
        self._random = random.Random(seed)
        self._seen: set[str] = set()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(multivariate=True, group=True, seed=seed, n_startup_trials=8)
        self._study = optuna.create_study(sampler=sampler)
        self._listed: list[Config] | None = None

    def tell(self, config: Config, cost: float | None, *, infeasible: bool = False) -> None:
        """Take a measured configuration; None for one that failed, which TPE must see as infeasible.

        Optuna's samplers ignore failed trials, so a failure is told as pruned under a broken constraint.
        """
        self._seen.add(config.key)
        usable = cost is not None and not infeasible
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.COMPLETE if cost is not None else optuna.trial.TrialState.PRUNED,
            value=cost,
            params=parameters(self._space, config),
            distributions=distributions(self._space, config),
            constraints={"feasible": 0.0 if usable else 1.0},
        )
        self._study.add_trial(trial)

    def propose(self) -> Config | None:
        """A configuration that is new; None when every one has been tried or excluded."""
        if self._random.random() >= RANDOM_SHARE:
            for _ in range(ASKS):
                config = self._ask()
                if config is not None and self._is_new(config):
                    return config
        return self._draw()

    def _is_new(self, config: Config) -> bool:
        return config.key not in self._seen and not self._excluded(config)

    def _ask(self) -> Config | None:
        trial = self._study.ask()
        engine = str(trial.suggest_categorical(ENGINE, [p.engine.name for p in self._space.engines]))
        part = self._space.part(engine)
        anchor = self._space.default(engine)
        variant = str(trial.suggest_categorical(f"{engine}/{VARIANT}", labels(part, anchor)))
        settings = {
            d.name: trial.suggest_categorical(f"{engine}/{d.name}", choices(self._space, anchor, d.name))
            for d in part.dimensions
        }
        # Only what is measured becomes data: `tell` adds it under its canonical form.
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return self._space.make(engine, variant, cast("dict[str, Setting]", settings))

    def _draw(self) -> Config | None:
        if self._space.combinations > ENUMERABLE:
            drawn = (self._space.draw(self._random) for _ in range(1000))
            return next((c for c in drawn if c is not None and self._is_new(c)), None)
        if self._listed is None:
            self._listed = self._space.everything()
            self._random.shuffle(self._listed)
        self._listed = [config for config in self._listed if self._is_new(config)]
        return self._listed[-1] if self._listed else None
