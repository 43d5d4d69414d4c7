"""What a search knows: clean samples by phase, and the estimates that follow from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from profiles.vocabulary import Config, Objective, RoundSamples
from tuner.engines.base import Phase
from tuner.search.objectives import cost, predict
from tuner.search.phases import phase_times
from tuner.search.space import Space


@dataclass(frozen=True)
class Estimate:
    """A configuration's expected objective; `cost` is `value` as something to minimize.

    `rounds` counts those of the phase with fewer.
    """

    config: Config
    value: float
    cost: float
    ttft_ms: float
    itl_ms: float
    rounds: int


class Ledger:
    """Round values by phase key, so that one measurement serves every configuration it speaks for."""

    def __init__(self, space: Space, objective: Objective) -> None:
        self._space = space
        self._objective = objective
        self._values: dict[Phase, dict[Config, list[float]]] = {phase: {} for phase in Phase}
        self._configs: dict[str, Config] = {}

    def add(self, config: Config, rounds: Iterable[RoundSamples]) -> None:
        """Take the clean rounds of a measurement."""
        self._configs.setdefault(config.key, config)
        for samples in rounds:
            if samples.dropped is not None:
                continue
            times = phase_times(samples, self._space.workload)
            # With some streams waiting for others, TTFT is no share of anything.
            waits = samples.ttft_ms and self._objective.metric.startswith("ttft_ms")
            for phase, value in (
                (Phase.PREFILL, median(samples.ttft_ms) if waits else times.ttft_ms),
                (Phase.DECODE, times.itl_ms),
            ):
                if value is not None:
                    self._of(config, phase).append(value)

    def forget(self) -> None:
        """Drop all samples."""
        self._configs.clear()
        for table in self._values.values():
            table.clear()

    def _of(self, config: Config, phase: Phase) -> list[float]:
        return self._values[phase].setdefault(self._space.phase_part(config, phase), [])

    def samples_ms(self, phase: Phase) -> Mapping[Config, Sequence[float]]:
        """All round values of a phase by `Space.phase_part`."""
        return self._values[phase]

    def values_ms(self, config: Config, phase: Phase) -> tuple[float, ...]:
        """The phase's round values: TTFT or the median gap between tokens, in milliseconds."""
        return tuple(self._values[phase].get(self._space.phase_part(config, phase), ()))

    def missing(self, config: Config) -> frozenset[Phase]:
        """The phases of which nothing clean is known."""
        return frozenset(phase for phase in Phase if not self.values_ms(config, phase))

    def lacking(self, config: Config, rounds: int) -> frozenset[Phase]:
        """The phases of which fewer clean rounds are known."""
        return frozenset(phase for phase in Phase if len(self.values_ms(config, phase)) < rounds)

    def __contains__(self, config: Config) -> bool:
        return config.key in self._configs

    def __len__(self) -> int:
        return len(self._configs)

    @property
    def configs(self) -> tuple[Config, ...]:
        """Every configuration that was measured itself, in order."""
        return tuple(self._configs.values())

    def estimate(self, config: Config) -> Estimate | None:
        """The estimate from the medians of both phases; None while one is missing."""
        prefill = self.values_ms(config, Phase.PREFILL)
        decode = self.values_ms(config, Phase.DECODE)
        if not prefill or not decode:
            return None
        ttft_ms, itl_ms = median(prefill), median(decode)
        value = predict(self._objective, self._space.workload, ttft_ms, itl_ms)
        rounds = min(len(prefill), len(decode))
        return Estimate(config, value, cost(self._objective, value), ttft_ms, itl_ms, rounds)

    def ranked(self) -> list[Estimate]:
        """All estimates, best first, over what was measured and every combination of its phases.

        Configurations that share the settings of both phases can exchange the settings of one: their
        times add up, so the best prefill and the best decode make one configuration.
        """
        estimates = (self.estimate(config) for config in self._combined())
        return sorted((e for e in estimates if e is not None), key=lambda e: e.cost)

    def _combined(self) -> Iterator[Config]:
        found = dict(self._configs)
        groups: dict[Config, list[Config]] = defaultdict(list)
        for config in self._configs.values():
            groups[self._space.shared_part(config)].append(config)
        for group in groups.values():
            prefill = self._best(group, Phase.PREFILL)
            decode = self._best(group, Phase.DECODE)
            if prefill is not None and decode is not None:
                combined = self._space.joined(prefill, decode)
                if combined is not None:
                    found.setdefault(combined.key, combined)
        yield from found.values()

    def _best(self, group: list[Config], phase: Phase) -> Config | None:
        measured = [config for config in group if self.values_ms(config, phase)]
        return min(measured, key=lambda c: median(self.values_ms(c, phase)), default=None)
