"""Feasibility: which configurations keep the quality level and the limits of a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from profiles.metrics import base_name
from profiles.vocabulary import Config, Limit, Quality, QualityLevel
from tuner.engines.base import SOURCE
from tuner.errors import ModelFileError, WorkerError
from tuner.events import Event, Observer
from tuner.search.limits import QUALITY_METRICS, Broken, Metrics, broken, unkept
from tuner.search.space import Space

Measure = Callable[[Config], Quality]
"""Quality of a configuration; raises WorkerError or ModelFileError where it can't be had."""


class QualityJudge:
    """Knows for every quality key whether it keeps the level, once for all that answer alike.

    `metrics_of` gives what is known of a configuration's speed and memory, `refuses` why a configuration
    may not be published whatever it measures.
    """

    def __init__(
        self,
        space: Space,
        level: QualityLevel,
        measure: Measure | None,
        *,
        observer: Observer,
        limits: Sequence[Limit] = (),
        metrics_of: Callable[[Config], Metrics] = lambda _: {},
        refuses: Callable[[Config], str | None] = lambda _: None,
    ) -> None:
        self._space = space
        self._level = level
        self._measure = measure
        self._observe = observer
        self._metrics_of = metrics_of
        self._refuses = refuses
        self._limits = tuple(m for m in limits if base_name(m.metric) not in QUALITY_METRICS)
        self._quality_limits = tuple(m for m in limits if m not in self._limits)
        self._found: dict[Config, Quality | None] = {}
        first, *others = (space.default(part.engine.name) for part in space.engines)
        # Another engine may take the file only by a conversion, which has to keep the level like any variant.
        given = [first, *(config for config in others if config.variant == SOURCE)]
        given += [] if space.baseline is None else [space.baseline]
        self._as_given = {space.quality_key(config).key for config in given}

    def quality(self, config: Config) -> Quality | None:
        """The measured quality; None where it can't be measured."""
        key = self._space.quality_key(config)
        if key not in self._found:
            self._found[key] = self._ask(key)
        return self._found[key]

    def known(self, config: Config) -> Quality | None:
        """The quality if it was measured; measures nothing."""
        return self._found.get(self._space.quality_key(config))

    def verdicts(self) -> list[tuple[Config, Quality | None, bool]]:
        """Everything judged: what of a configuration decides its answers, its quality, whether that may be
        published."""
        return [(key, quality, self._keeps(key)) for key, quality in self._found.items()]

    def feasible(self, config: Config) -> bool:
        """Whether it may be published; measures quality where that is not known yet.

        The model as it was given always keeps the level: quality is relative to it. So do the answers that a
        user's own command gives. A variant that misses the level is not asked again with a coarser KV cache.
        Where nothing can be measured (random weights), the level rules nothing out, and reports say "not
        measured". A limit rules out what is known to break it; what must be shown in the end is `unkept`.
        """
        if self._refuses(config) is not None or self._breaks_limits(config):
            return False
        if not self._judges:
            return not self._quality_limits
        return all(self._keeps(key) for key in self._keys(config))

    def known_bad(self, config: Config) -> bool:
        """Whether it was judged and fails the level or a limit; measures nothing."""
        return self._breaks_limits(config) or self.misses_level(config)

    def misses_level(self, config: Config) -> bool:
        """Whether its quality was judged and fails; measures nothing."""
        if not self._judges:
            return False
        return any(key in self._found and not self._keeps(key) for key in self._keys(config))

    def unkept(self, config: Config, metrics: Metrics) -> tuple[str, ...]:
        """Why a configuration with these metrics may not be published; measures its quality for limits."""
        refusal = self._refuses(config)
        known = dict(metrics)
        if self._quality_limits:
            known |= quality_metrics(self.quality(config))
        missing: tuple[Broken, ...] = unkept((*self._limits, *self._quality_limits), known)
        return (*((refusal,) if refusal else ()), *map(str, missing))

    @property
    def _judges(self) -> bool:
        """Whether quality decides anything, and can be measured."""
        decides = self._level.name != "any" or bool(self._quality_limits)
        return self._measure is not None and decides

    def _breaks_limits(self, config: Config) -> bool:
        return bool(self._limits) and bool(broken(self._limits, self._metrics_of(config)))

    def _keys(self, config: Config) -> tuple[Config, ...]:
        """The variant with the default's other settings, then the configuration itself."""
        key = self._space.quality_key(config)
        default = self._space.quality_key(self._space.default(config.engine))
        plain = Config(key.engine, key.variant, default.settings)
        return (key,) if plain == key else (plain, key)

    def _keeps(self, key: Config) -> bool:
        given = key.key in self._as_given
        if given and not self._quality_limits:
            return True
        if key not in self._found:
            self._found[key] = self._ask(key)
        quality = self._found[key]
        if quality is None or not (given or quality.meets(self._level)):
            return False
        return not unkept(self._quality_limits, quality_metrics(quality))

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


def quality_metrics(quality: Quality | None) -> dict[str, float]:
    """A quality as flat metrics; what was not measured, or is not a finite number, is absent."""
    if quality is None:
        return {}
    found = {name: getattr(quality, name) for name in sorted(QUALITY_METRICS)}
    return {name: value for name, value in found.items() if math.isfinite(value)}
