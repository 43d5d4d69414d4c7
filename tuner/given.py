"""A configuration as a user gave it, completed and checked for this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from profiles.vocabulary import Config, Role
from tuner.engines.base import Dimension
from tuner.errors import UsageError
from tuner.narrowing import check_names, memory_problem, problem_of
from tuner.search.narrow import fitted
from tuner.search.space import Space
from tuner.workshop import Workshop

THREADS_PER_CPU, MOST_THREADS = 8, 1024
"""Up to here, more threads than CPUs are measured, for users to see what they cost."""


def check_threads(
    origin: str, settings: Mapping[str, object], dimensions: Iterable[Dimension], shop: Workshop
) -> None:
    """UsageError for a thread count so far above the CPUs that it shows nothing but may hang the machine."""
    cpus = shop.machine.effective.cpu_count
    most = min(THREADS_PER_CPU * cpus, MOST_THREADS)
    for dimension in dimensions:
        value = settings.get(dimension.name)
        if dimension.role is Role.THREADS and isinstance(value, int) and value > most:
            raise UsageError(
                f"{origin}: {dimension.name}={value}: allowed is 1 to {most}, {THREADS_PER_CPU} for each of"
                f" {cpus} CPUs and at most {MOST_THREADS}"
            )


def completed(origin: str, given: Config, shop: Workshop, space: Space) -> Config:
    """The canonical configuration with the default's values for what is not given.

    Raises UsageError with the nearest name for an unknown variant or setting, and with the engine's reason
    for a value that can't run. Thread counts above the CPUs pass: comparing them is how a user sees why not.
    """
    part = space.part(given.engine)
    recipes = {recipe.label: recipe for recipe in part.engine.recipes(shop.model)}
    check_names("variant", (given.variant,), tuple(recipes))
    check_names("setting", (name for name, _ in given.settings), tuple(part.by_name))
    settings = space.default(given.engine).as_dict()
    settings |= {name: fitted(part.by_name[name], value) for name, value in given.settings}
    config = Config.of(given.engine, given.variant, settings)
    most = shop.machine.effective.cpu_count
    within = {
        d.name: most
        for d in part.dimensions
        if d.role is Role.THREADS and isinstance(value := config.get(d.name), int) and value > most
    }
    problem = problem_of(shop, part.engine, config.with_settings(**within))
    problem = problem or memory_problem(shop, recipes[given.variant])
    if problem is not None:
        raise UsageError(f"{origin}: {problem}")
    return space.canonical(config)
