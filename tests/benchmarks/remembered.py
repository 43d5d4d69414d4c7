"""A space that remembers its answers, since replays ask the same of it over and over."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Self

from profiles.vocabulary import Config, Setting
from tuner.engines.base import Phase
from tuner.search.space import Space


@dataclass(frozen=True)
class RememberedSpace(Space):
    """Answers as a `Space` does, each question of a configuration once."""

    @classmethod
    def of(cls, space: Space) -> Self:
        """The same space."""
        return cls(**{field.name: getattr(space, field.name) for field in fields(space)})

    def __post_init__(self) -> None:
        for name in ("canonical", "default", "phase_part", "quality_key", "shared_part"):
            object.__setattr__(self, name, cache(getattr(self, name)))

    def make(self, engine: str, variant: str, settings: Mapping[str, Setting]) -> Config | None:
        key = engine, variant, frozenset(settings.items())
        if key not in self._made:
            self._made[key] = super().make(engine, variant, settings)
        return self._made[key]

    def listed(self, phase: Phase, rng: random.Random) -> list[Config]:
        if not self.is_separable:
            # Some of it may be drawn.
            return super().listed(phase, rng)
        if phase not in self._listed:
            self._listed[phase] = super().listed(phase, rng)
        return list(self._listed[phase])

    @cached_property
    def _made(self) -> dict[tuple[str, str, frozenset[tuple[str, Setting]]], Config | None]:
        return {}

    @cached_property
    def _listed(self) -> dict[Phase, list[Config]]:
        return {}
