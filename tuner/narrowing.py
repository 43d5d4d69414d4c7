"""What of the space a request keeps: variants that fit, values that can run, threads that are allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from profiles.vocabulary import Config, ModelInfo, Role, Workload
from tuner.engines.base import SOURCE, Dimension, Engine, Recipe
from tuner.errors import NothingFeasibleError, UsageError
from tuner.events import Event
from tuner.measurement import placement
from tuner.request import SearchRequest, near
from tuner.search.narrow import fewer_threads, fitted, narrowed, same_answers
from tuner.search.space import Space
from tuner.workshop import Workshop


def check_names(what: str, asked: Iterable[str], allowed: tuple[str, ...]) -> None:
    """UsageError for the first name that is not allowed, with the nearest one."""
    for name in asked:
        if name not in allowed:
            raise UsageError(
                f"unknown {what} '{name}': allowed are {', '.join(allowed)}{near(name, allowed)}"
            )


def check_variants(request: SearchRequest, shop: Workshop, engines: Sequence[Engine]) -> None:
    """Whether the variants that were asked for can be made, and the first engine's default be measured.

    Raises UsageError for a variant that no engine makes, NothingFeasibleError where the default can't fit.
    """
    made = dict.fromkeys(recipe.label for engine in engines for recipe in engine.recipes(shop.model))
    check_names("variant", request.variants or (), tuple(made))
    if request.answers_unchanged and request.variants is not None and SOURCE not in request.variants:
        raise UsageError("--answers-unchanged keeps to the file as given: leave out --variants")
    problem = memory_problem(shop, engines[0].recipes(shop.model)[0])
    if problem is not None:
        raise NothingFeasibleError(f"the default can't be measured: {problem}; use a smaller file")


def searched_variants(request: SearchRequest, shop: Workshop, engine: Engine) -> tuple[str, ...]:
    """The engine's variants that were asked for, fit into memory and can be made; a note for each that
    doesn't."""
    kept = []
    for recipe in engine.recipes(shop.model):
        if request.variants is not None and recipe.label not in request.variants:
            continue
        if request.answers_unchanged and not recipe.is_source:
            continue
        problem = memory_problem(shop, recipe) or shop.lacking(engine, recipe)
        if problem is None:
            kept.append(recipe.label)
        else:
            shop.observer(Event("note", f"left out: {problem}"))
    return tuple(kept)


def memory_problem(shop: Workshop, recipe: Recipe) -> str | None:
    """Why a variant can't fit: its file and its KV cache against what may still be allocated."""
    room = shop.machine.effective.memory_bytes
    cache = kv_cache_bytes(shop.model, shop.workload)
    if room is None or recipe.estimated_bytes + cache <= room:
        return None
    return (
        f"{recipe.label} needs {_gib(recipe.estimated_bytes)} for its file and {_gib(cache)} for the KV"
        f" cache, {_gib(room)} of memory are free"
    )


def kv_cache_bytes(model: ModelInfo, workload: Workload) -> int:
    """The least that an f16 KV cache takes: with a sliding window every layer may keep just that."""
    tokens = min(workload.context_tokens, model.sliding_window or workload.context_tokens)
    return tokens * workload.streams * kv_token_bytes(model)


def kv_token_bytes(model: ModelInfo) -> int:
    """What one token takes in an f16 KV cache, over all layers."""
    return model.layer_count * model.kv_head_count * (model.key_length + model.value_length) * 2


def searched_dimensions(
    request: SearchRequest, shop: Workshop, engine: Engine, dimensions: tuple[Dimension, ...]
) -> tuple[Dimension, ...]:
    """The dimensions as the request narrows or extends them."""
    most = threads_allowed(request, shop)
    asked = {
        d.name: tuple(dict.fromkeys(fitted(d, value) for value in request.space[d.name]))
        for d in dimensions
        if d.name in request.space
    }
    chosen = narrowed(dimensions, asked)
    for dimension in chosen:
        if dimension.name in asked:
            check_values(shop, engine, chosen, dimension, most)
    if request.answers_unchanged:
        chosen = same_answers(chosen)
    return fewer_threads(chosen, most) if request.leave_cores else chosen


def threads_allowed(request: SearchRequest, shop: Workshop) -> int:
    """The most threads that the search may use; UsageError where --leave-cores leaves none."""
    every = shop.machine.effective.cpu_count_ceiling
    if not 0 <= request.leave_cores < every:
        raise UsageError(
            f"--leave-cores {request.leave_cores}: allowed is 0 to {every - 1},"
            f" since this process may use {every} CPUs"
        )
    return every - request.leave_cores


def check_values(
    shop: Workshop, engine: Engine, dimensions: Sequence[Dimension], dimension: Dimension, most: int
) -> None:
    """Whether each value of a dimension can run with some value of one other dimension.

    Raises UsageError with the engine's reason, and for more threads than there are CPUs for them.
    """
    default = engine.default(shop.machine, shop.model, shop.workload)
    base = default.with_settings(**{d.name: d.default for d in dimensions})
    for value in dimension.values:
        if dimension.role is Role.THREADS and isinstance(value, int) and value > most:
            raise UsageError(f"{dimension.name}={value}: allowed is 1 to {most}, the CPUs for this search")
        own = base.with_settings(**{dimension.name: value})
        problem = problem_of(shop, engine, own)
        elsewhere = (
            own.with_settings(**{other.name: choice})
            for other in dimensions
            if other.name != dimension.name
            for choice in other.values
        )
        if problem is not None and all(problem_of(shop, engine, c) for c in elsewhere):
            raise UsageError(problem)


def problem_of(shop: Workshop, engine: Engine, config: Config) -> str | None:
    """Why a configuration can't run; host-wide settings have no other values than those described."""
    described = {d.name: d.values for d in placement.dimensions(engine, shop.machine)}
    for name, values in described.items():
        value = config.get(name)
        if value is not None and value not in values:
            return f"{name}={value}: allowed are {', '.join(map(str, values))}"
    return engine.violation(config, shop.machine, shop.model, shop.workload)


def refusal_of(request: SearchRequest, shop: Workshop, space: Space) -> Callable[[Config], str | None]:
    """Says why a configuration may not be published whatever it measures: more threads than are left."""
    most = threads_allowed(request, shop)

    def refuses(config: Config) -> str | None:
        if not request.leave_cores:
            return None
        for dimension in space.part(config.engine).dimensions:
            value = config.get(dimension.name)
            if dimension.role is Role.THREADS and isinstance(value, int) and value > most:
                return f"{dimension.name}={value}: --leave-cores {request.leave_cores} allows {most}"
        return None

    return refuses


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
