"""Narrows or extends an engine's part of the space to what a user allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner.engines.base import Dimension, Engine

Allowed = Mapping[str, Sequence[Setting]]
"""Setting -> the values to search; settings that are not named keep theirs."""


def narrowed(dimensions: Sequence[Dimension], allowed: Allowed) -> tuple[Dimension, ...]:
    """The dimensions with the allowed values, in the order given.

    Where the default of a setting is not allowed, the nearest allowed value stands in for it wherever the
    search names none.
    """
    return tuple(_with_values(d, tuple(allowed[d.name])) if d.name in allowed else d for d in dimensions)


def fewer_threads(dimensions: Sequence[Dimension], most: int) -> tuple[Dimension, ...]:
    """The dimensions without thread counts above `most`."""
    return tuple(
        _with_values(d, tuple(v for v in d.values if isinstance(v, int) and v <= most) or (most,))
        if d.role is Role.THREADS
        else d
        for d in dimensions
    )


def same_answers(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions with the default alone where another value would change the output."""
    return tuple(replace(d, values=(d.default,)) if d.affects_quality else d for d in dimensions)


def fitted(dimension: Dimension, value: Setting) -> Setting:
    """The value as the setting takes it: YAML reads on and off as true and false."""
    words = {v for v in dimension.values if isinstance(v, str)} | {dimension.default}
    if isinstance(value, bool) and words & {"on", "off"}:
        return "on" if value else "off"
    return value


def _with_values(dimension: Dimension, values: tuple[Setting, ...]) -> Dimension:
    default = dimension.default
    if default not in values:
        default = min(values, key=lambda value: _distance(value, default))
    return replace(dimension, values=values, default=default)


def _distance(one: Setting, other: Setting) -> float:
    numbers = [v for v in (one, other) if isinstance(v, int | float) and not isinstance(v, bool)]
    return abs(numbers[0] - numbers[1]) if len(numbers) == 2 else float(one != other)


def restrict(engine: Engine, before: Sequence[Dimension], after: Sequence[Dimension]) -> Engine:
    """The engine for a search over `after` in place of `before`: what lies outside can't run."""
    if tuple(before) == tuple(after):
        return engine
    # Everything that is not overridden is the engine's own, which a protocol can't say.
    return cast("Engine", _Restricted(engine, tuple(before), tuple(after)))


@dataclass(frozen=True)
class _Restricted:
    """An engine whose configurations lie within narrowed dimensions; its default stays what a user gets."""

    engine: Engine
    before: tuple[Dimension, ...]
    after: tuple[Dimension, ...]

    def __getattr__(self, name: str) -> Any:
        if name == "engine":
            # Asked before it is set, when Python copies an object.
            raise AttributeError(name)
        return getattr(self.engine, name)

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """The engine's own, completed with the defaults of host-wide settings as they were."""
        given = self.engine.default(machine, model, workload)
        return given.with_settings(**{d.name: d.default for d in self.before} | given.as_dict())

    def starts(
        self, machine: Machine, model: ModelInfo, workload: Workload
    ) -> tuple[Mapping[str, Setting], ...]:
        """The engine's rules of thumb, as far as they lie within."""
        values = {d.name: d.values for d in self.after}
        inside = [
            {name: value for name, value in start.items() if value in values.get(name, ())}
            for start in self.engine.starts(machine, model, workload)
        ]
        return tuple({tuple(sorted(start.items())): start for start in inside}.values())

    def violation(self, config: Config, machine: Machine, model: ModelInfo, workload: Workload) -> str | None:
        """The engine's own reason, or the first value that lies outside and behaves unlike those inside."""
        for dimension in self.after:
            value = config.get(dimension.name)
            if value is None or value in dimension.values:
                continue
            inside = config.with_settings(**{dimension.name: dimension.default})
            if self._canonical(inside, model, workload) != self._canonical(config, model, workload):
                allowed = ", ".join(map(str, dimension.values))
                return f"{dimension.name}={value}: this search allows {allowed}"
        return self.engine.violation(config, machine, model, workload)

    def _canonical(self, config: Config, model: ModelInfo, workload: Workload) -> Config:
        return self.engine.canonical(config, model, workload)
