"""The space of configurations: each engine's variants and dimensions, canonical and finite."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Setting, Workload
from tuner.engines.base import Dimension, Engine, Phase, Scope
from tuner.measurement import placement

VARIANT = "variant"
ENUMERABLE = 200_000
"""Up to so many raw combinations the space is listed, so that its exhaustion is noticed."""
KEPT = 0.7
"""How likely each setting keeps its default in half of the configurations that are drawn."""


@dataclass(frozen=True)
class EngineSpace:
    """One engine's part of the space."""

    engine: Engine
    variants: tuple[str, ...]
    dimensions: tuple[Dimension, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Dimension]:
        """The dimensions by their names."""
        return {dimension.name: dimension for dimension in self.dimensions}

    @property
    def combinations(self) -> int:
        """How many raw combinations there are, before constraints and canonical forms."""
        return len(self.variants) * math.prod(len(dimension.values) for dimension in self.dimensions)


@dataclass(frozen=True)
class Space:
    """All configurations that a search may try on this machine for this model and workload."""

    machine: Machine
    model: ModelInfo
    workload: Workload
    engines: tuple[EngineSpace, ...]
    baseline: Config | None = None
    """What a search is to beat in place of the first engine's default."""

    def part(self, engine: str) -> EngineSpace:
        """The part of one engine."""
        return next(part for part in self.engines if part.engine.name == engine)

    @property
    def combinations(self) -> int:
        """How many raw combinations there are over all engines."""
        return sum(part.combinations for part in self.engines)

    @property
    def digest(self) -> str:
        """A short digest of names and values, and of a baseline of its own; another one is another study."""
        document: list[object] = [
            [part.engine.name, part.variants, [[d.name, d.values] for d in part.dimensions]]
            for part in self.engines
        ]
        if self.baseline is not None:
            document.append([self.baseline.engine, self.baseline.variant, self.baseline.settings])
        return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:12]

    def make(self, engine: str, variant: str, settings: Mapping[str, Setting]) -> Config | None:
        """The canonical configuration with these settings, the default for the others; None where it
        can't run."""
        part = self.part(engine)
        merged = {d.name: settings.get(d.name, d.default) for d in part.dimensions}
        config = Config.of(engine, variant, merged)
        problem = part.engine.violation(config, self.machine, self.model, self.workload)
        if problem or placement.violation(config, self.machine, part.dimensions):
            return None
        return self.canonical(config)

    def canonical(self, config: Config) -> Config:
        """The one form of all configurations that behave alike."""
        engine = self.part(config.engine).engine
        return engine.canonical(config, self.model, self.workload)

    def default(self, engine: str) -> Config:
        """What a user gets who sets nothing, completed with the defaults of host-wide dimensions.

        It is kept as it is, even where it asks for more threads than there are CPUs.
        """
        part = self.part(engine)
        given = part.engine.default(self.machine, self.model, self.workload)
        settings = {d.name: d.default for d in part.dimensions} | given.as_dict()
        return self.canonical(Config.of(engine, given.variant, settings))

    def starts(self, engine: str) -> Iterator[Mapping[str, Setting]]:
        """The engine's rules of thumb, with those for the host-wide settings that are searched."""
        part = self.part(engine)
        host = {
            name: value
            for name, value in placement.RULES_OF_THUMB.items()
            if name in part.by_name and value in part.by_name[name].values
        }
        for start in part.engine.starts(self.machine, self.model, self.workload):
            yield {**host, **start}

    @property
    def is_separable(self) -> bool:
        """Whether the phases can be measured apart; with several streams they overlap."""
        return self.workload.streams == 1

    def phase_part(self, config: Config, phase: Phase) -> Config:
        """Equal for configurations whose speed in this phase can't differ.

        With several streams every configuration stands for itself.
        """
        if not self.is_separable:
            return config
        return config.without(d.name for d in self.part(config.engine).dimensions if phase not in d.phases)

    def shared_part(self, config: Config) -> Config:
        """Equal for configurations that may exchange the settings of one phase."""
        if not self.is_separable:
            return config
        return config.without(d.name for d in self.part(config.engine).dimensions if len(d.phases) == 1)

    def joined(self, prefill: Config, decode: Config) -> Config | None:
        """`prefill` with the settings that only decoding has from `decode`; None where it can't run."""
        if not self.is_separable:
            return prefill
        taken = {
            d.name: value
            for d in self.part(decode.engine).dimensions
            if d.phases == {Phase.DECODE} and (value := decode.get(d.name)) is not None
        }
        return self.make(prefill.engine, prefill.variant, {**prefill.as_dict(), **taken})

    def quality_key(self, config: Config) -> Config:
        """The part of a configuration that decides what the model answers."""
        judged = self.part(config.engine).dimensions
        return config.without([d.name for d in judged if not d.affects_quality])

    def around(self, config: Config) -> Iterator[Config]:
        """Those that differ in one setting, cheap switches first, then in the variant: the next values on a
        scale of numbers, else every other one."""
        part, settings = self.part(config.engine), config.as_dict()
        wanted = [
            (config.variant, {**settings, dimension.name: value})
            for dimension in sorted(part.dimensions, key=lambda d: d.scope)
            for value in _next_to(config.get(dimension.name), dimension.values)
        ]
        wanted += [(variant, settings) for variant in part.variants]
        made = (self.make(config.engine, variant, changed) for variant, changed in wanted)
        yield from dict.fromkeys(c for c in made if c is not None and c != config)

    def switch(self, before: Config | None, after: Config) -> Scope | None:
        """What must be made anew to go from one configuration to another; None when nothing."""
        if before is None or before.engine != after.engine:
            return Scope.PROCESS
        if before.variant != after.variant:
            return Scope.LOAD
        by_name = self.part(after.engine).by_name
        changed = [by_name[name].scope for name, value in after.settings if before.get(name) != value]
        return max(changed, default=None)

    def everything(self) -> list[Config]:
        """Every canonical configuration once, in a fixed order; for spaces within `ENUMERABLE`."""
        return list(dict.fromkeys(self._product(frozenset(Phase))))

    def listed(self, phase: Phase, rng: random.Random) -> list[Config]:
        """One configuration for every phase part, in a fixed order; the other phase has its defaults.

        Where the phases can't be taken apart and there are too many, it is a random part of them.
        """
        if self.is_separable:
            found = {self.phase_part(config, phase): config for config in self._product(frozenset({phase}))}
            return list(found.values())
        if self.combinations <= ENUMERABLE // 10:
            return self.everything()
        # Half of them near the default: what is good differs from it in a few settings.
        drawn = (self.draw(rng, keep=KEPT * (n % 2)) for n in range(ENUMERABLE // 10))
        return list(dict.fromkeys(config for config in drawn if config is not None))

    def _product(self, phases: frozenset[Phase]) -> Iterator[Config]:
        for part in self.engines:
            varied = [d for d in part.dimensions if d.phases & phases]
            names = [d.name for d in varied]
            for variant in part.variants:
                for values in itertools.product(*(d.values for d in varied)):
                    config = self.make(part.engine.name, variant, dict(zip(names, values, strict=True)))
                    if config is not None:
                        yield config

    def draw(self, rng: random.Random, keep: float = 0.0) -> Config | None:
        """A random canonical configuration; None where the drawn combination can't run.

        Each setting keeps its default with probability `keep`.
        """
        part = rng.choices(self.engines, weights=[len(p.variants) for p in self.engines])[0]
        settings = {
            d.name: d.default if keep and rng.random() < keep else rng.choice(d.values)
            for d in part.dimensions
        }
        return self.make(part.engine.name, rng.choice(part.variants), settings)


def _next_to(value: Setting | None, values: Sequence[Setting]) -> Sequence[Setting]:
    on_a_scale = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    if not on_a_scale or value not in values:
        return values
    place = values.index(value)
    return values[max(place - 1, 0) : place + 2]
