"""Limits: which of them measured metrics break, and which are not shown to be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from profiles.metrics import METRICS, base_name, flat_name
from profiles.vocabulary import Config, Limit
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.errors import WorkerError
from tuner.measurement.asked import Kind
from tuner.measurement.measurement import Measurement
from tuner.search.ports import Runner

QUALITY_METRICS = frozenset({"kl_divergence", "top1_agreement", "perplexity_ratio"})
Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Broken:
    """A limit with what was seen instead; None where nothing shows that it is kept."""

    limit: Limit
    seen: float | None

    @property
    def excess(self) -> float:
        """How far it is off, relative to the limit; infinite where nothing was seen."""
        if self.seen is None:
            return float("inf")
        return self.limit.violation(self.seen) / max(abs(self.limit.value), 1e-9)

    def __str__(self) -> str:
        if self.seen is not None:
            return f"{self.limit}: it is {METRICS[base_name(self.limit.metric)].format(self.seen)}"
        few = ": a p95 needs 59 clean samples" if self.limit.metric.endswith(".p95") else ""
        return f"{self.limit}: not measured{few}"


def seen(limit: Limit, metrics: Metrics) -> float | None:
    """The limit's metric where it was measured; a p95 only with the samples to claim it.

    A `max_of_n` beside a p95 says that there are too few (`measurement.metrics.summarise`).
    """
    return None if is_unearned(limit, metrics) else metrics.get(flat_name(limit.metric))


def is_unearned(limit: Limit, metrics: Metrics) -> bool:
    """Whether the limit is on a p95 that has too few samples to be claimed."""
    return is_unearned_p95(limit.metric, metrics)


def is_unearned_p95(name: str, metrics: Metrics) -> bool:
    """Whether a flat name is that of a p95 that has too few samples to be claimed."""
    return name.endswith(".p95") and f"{base_name(name)}.max_of_n" in metrics


def broken(limits: Iterable[Limit], metrics: Metrics) -> tuple[Broken, ...]:
    """The limits that what was measured breaks; what was not measured breaks nothing."""
    return tuple(b for b in unkept(limits, metrics) if b.seen is not None)


def unkept(limits: Iterable[Limit], metrics: Metrics) -> tuple[Broken, ...]:
    """The limits that are not shown to be kept."""
    found = (Broken(limit, seen(limit, metrics)) for limit in limits)
    # Not `> 0`: that lets NaN through.
    return tuple(b for b in found if b.seen is None or not b.limit.violation(b.seen) <= 0)


def nearest(
    limits: Iterable[Limit], candidates: Iterable[tuple[Config, Metrics]]
) -> tuple[Config, tuple[Broken, ...]] | None:
    """The candidate that breaks the limits by the least, as its worst one counts, with what it breaks."""
    wanted = tuple(limits)
    found = [(config, unkept(wanted, metrics)) for config, metrics in candidates]
    breaking = [(config, breaks) for config, breaks in found if breaks]
    return min(breaking, key=lambda pair: max(b.excess for b in pair[1]), default=None)


class Gauge:
    """A runner that remembers what each configuration measured on another one, for its limits.

    `summarise` gives the flat metrics of a measurement.
    """

    def __init__(self, runner: Runner, summarise: Callable[[Config, Measurement], Metrics]) -> None:
        self._runner = runner
        self._summarise = summarise
        self._last: dict[Config, Measurement] = {}
        self._earlier: dict[Config, Metrics] = {}
        self._known: dict[Config, Metrics] = {}

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        """As the runner's."""
        measured = self._runner.measure(config, rounds=rounds, kind=kind, phases=phases, fresh=fresh)
        self._known.pop(config, None)
        before = self._last.get(config)
        self._last[config] = measured if before is None else before.joined(measured)
        return measured

    def remember(self, config: Config, metrics: Metrics) -> None:
        """Take the metrics of an earlier run."""
        self._earlier[config] = metrics

    def metrics(self, config: Config) -> Metrics:
        """The flat metrics of a configuration, as far as it was measured itself."""
        if config not in self._known:
            self._known[config] = self._summary(config)
        return self._known[config]

    def _summary(self, config: Config) -> Metrics:
        measured, earlier = self._last.get(config), self._earlier.get(config, {})
        if measured is None:
            return earlier
        full = tuple(r for r in measured.rounds if r.kind == "full" and r.dropped is None)
        try:
            now = self._summarise(config, replace(measured, rounds=full or measured.rounds))
        except WorkerError:
            # Not one clean round: nothing is known.
            return earlier
        # Distributions are not mixed: a p95 of now and the sample count of then would make a false claim.
        return {name: value for name, value in earlier.items() if "." not in name} | dict(now)

    @property
    def configs(self) -> tuple[Config, ...]:
        """Every configuration of which something is known."""
        return tuple(dict.fromkeys((*self._earlier, *self._last)))
