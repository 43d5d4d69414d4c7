"""Optuna's view of the space: a configuration as parameters with their distributions."""

from __future__ import annotations

from optuna.distributions import BaseDistribution, CategoricalDistribution

from profiles.vocabulary import Config, Setting
from tuner.search.space import VARIANT, EngineSpace, Space

ENGINE = "engine"


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


def is_expressible(space: Space, config: Config) -> bool:
    """Whether every setting has a value that its distribution knows."""
    known = space.part(config.engine).by_name
    return all(value in choices(space, config, name) for name, value in config.settings if name in known)


def labels(part: EngineSpace, default: Config) -> tuple[str, ...]:
    """The variants; behind them the default's own where it was not asked for."""
    added = () if default.variant in part.variants else (default.variant,)
    return (*part.variants, *added)


def choices(space: Space, config: Config, name: str) -> tuple[Setting, ...]:
    """A dimension's values and, behind them, those that only the default or the baseline has."""
    dimension = space.part(config.engine).by_name[name]
    given = [space.default(config.engine)]
    if space.baseline is not None and space.baseline.engine == config.engine:
        given.append(space.baseline)
    values = (one.get(name) for one in given)
    added = (value for value in values if value is not None and value not in dimension.values)
    return (*dimension.values, *dict.fromkeys(added))
