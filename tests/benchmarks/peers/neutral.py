"""One neutral run: every configuration in turn, pass after pass, and ratios from values of the same pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from profiles.vocabulary import Config, Interval
from tests.benchmarks.peers.build import PeersError
from tuner.measurement.statistics import log_ratios, ratio_interval

CONFIDENCE = 0.95

Values = Mapping[str, Sequence[float]]
"""Configuration key -> milliseconds, one value a pass; NaN where the pass failed."""


@dataclass(frozen=True)
class Referee:
    """Measures one configuration in a process of its own: milliseconds; PeersError where it can't."""

    name: str
    measure: Callable[[Config], float]


def interleave(
    referee: Referee, configs: Sequence[Config], passes: int, note: Callable[[str], None]
) -> dict[str, list[float]]:
    """`passes` values of every configuration, in an order that turns round from pass to pass.

    Whatever drifts or disturbs meets neighbours alike. Equal configurations are one. One that fails in its
    first pass is left out.
    """
    found: dict[str, list[float]] = {}
    running = list({config.key: config for config in configs}.values())
    for number in range(passes):
        note(f"{referee.name}: pass {number + 1} of {passes}")
        for config in tuple(running if number % 2 == 0 else reversed(running)):
            try:
                value = referee.measure(config)
            except PeersError as error:
                note(f"{referee.name}: {config.variant} {config.as_dict()} failed: {error}")
                value = math.nan
            if math.isnan(value) and number == 0:
                running.remove(config)
                continue
            found.setdefault(config.key, []).append(value)
    return found


def value_of(values: Values, config: Config) -> float | None:
    """The median over the passes; None for a configuration that was not measured."""
    clean = [value for value in values.get(config.key, ()) if not math.isnan(value)]
    return median(clean) if clean else None


def ratio(values: Values, slower: Config, faster: Config) -> Interval | None:
    """How many times the one takes what the other takes, from the passes that have both.

    Equal configurations that were measured are 1 by definition. None without a common pass.
    """
    if slower.key == faster.key:
        return Interval(1.0, 1.0, 1.0, 1.0) if slower.key in values else None
    a, b = values.get(slower.key, ()), values.get(faster.key, ())
    pairs = [(x, y) for x, y in zip(a, b, strict=False) if not math.isnan(x + y)]
    if not pairs:
        return None
    return ratio_interval(log_ratios([x for x, _ in pairs], [y for _, y in pairs]), CONFIDENCE)
