"""Feasibility: which configurations keep a quality level, judged once for all that answer alike."""

from __future__ import annotations

from collections.abc import Callable

from profiles.vocabulary import Config, Quality, QualityLevel
from tuner.engines.base import SOURCE
from tuner.errors import ModelFileError, WorkerError
from tuner.events import Event, Observer
from tuner.search.space import Space

Measure = Callable[[Config], Quality]
"""Quality of a configuration; raises WorkerError or ModelFileError where it can't be had."""


class QualityJudge:
    """Knows for every quality key whether it keeps the level."""

    def __init__(
        self, space: Space, level: QualityLevel, measure: Measure | None, *, observer: Observer
    ) -> None:
        self._space = space
        self._level = level
        self._measure = measure
        self._observe = observer
        self._found: dict[str, Quality | None] = {}
        self._as_given = {space.quality_key(space.default(part.engine.name)).key for part in space.engines}

    def quality(self, config: Config) -> Quality | None:
        """The measured quality; None where it can't be measured."""
        key = self._space.quality_key(config)
        if key.key not in self._found:
            self._found[key.key] = self._ask(key)
        return self._found[key.key]

    def known(self, config: Config) -> Quality | None:
        """The quality if it was measured; measures nothing."""
        return self._found.get(self._space.quality_key(config).key)

    def feasible(self, config: Config) -> bool:
        """Whether it may be published at the level; measures where that is not known yet.

        The model as it was given is always feasible: quality is relative to it. A variant that misses the
        level is not asked again with a coarser KV cache. Where nothing can be measured (random weights),
        nothing is ruled out, and reports say "not measured".
        """
        if self._measure is None or self._level.name == "any":
            return True
        return all(self._keeps(key) for key in self._keys(config))

    def known_bad(self, config: Config) -> bool:
        """Whether it was judged and fails the level; measures nothing."""
        if self._measure is None or self._level.name == "any":
            return False
        return any(key.key in self._found and not self._keeps(key) for key in self._keys(config))

    def _keys(self, config: Config) -> tuple[Config, ...]:
        """The variant with the default's other settings, then the configuration itself."""
        key = self._space.quality_key(config)
        default = self._space.quality_key(self._space.default(config.engine))
        plain = Config(key.engine, key.variant, default.settings)
        return (key,) if plain == key else (plain, key)

    def _keeps(self, key: Config) -> bool:
        if key.key in self._as_given:
            return True
        if key.key not in self._found:
            self._found[key.key] = self._ask(key)
        quality = self._found[key.key]
        return quality is not None and quality.meets(self._level)

    def _ask(self, key: Config) -> Quality | None:
        if self._measure is None:
            return None
        try:
            quality = self._measure(key)
        except (WorkerError, ModelFileError) as error:
            self._observe(Event("note", f"quality of {key.variant} could not be measured: {error}"))
            return None
        verdict = "keeps" if quality.meets(self._level) else "misses"
        settings = "".join(f" {name}={value}" for name, value in key.settings)
        self._observe(
            Event(
                "quality",
                f"{key.variant}{settings}: KL {quality.kl_divergence:.4f},"
                f" top-1 {quality.top1_agreement:.3f}, {verdict} {self._level.name}",
                {
                    "config": key,
                    "quality": quality,
                    "variant": key.variant,
                    "is_source": key.variant == SOURCE,
                },
            )
        )
        return quality
