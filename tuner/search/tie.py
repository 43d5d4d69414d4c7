"""Ties among the finalists: the cheaper one wins only if pairs of fresh processes show it no worse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from profiles.vocabulary import Config, Role
from tuner.measurement.statistics import shown_no_worse
from tuner.search.budget import CONFIRMED_PAIRS
from tuner.search.ledger import Estimate
from tuner.search.space import Space

NEAR = 1.03
"""Estimates within this factor of the first one's may be a tie."""
TIE_PAIRS = 8
LESS_MEMORY = 0.95
NO_MORE_MEMORY = 1.02
"""Two starts of one configuration differ by about a percent."""


def is_cheaper(
    space: Space, metrics_of: Callable[[Config], Mapping[str, float]], config: Config, than: Config
) -> bool:
    """Whether a configuration needs fewer threads or less memory, and of neither more.

    Memory counts where it was measured of both.
    """
    counts = [
        (one, other)
        for d in space.part(config.engine).dimensions
        if d.role is Role.THREADS
        and isinstance(one := config.get(d.name), int)
        and isinstance(other := than.get(d.name), int)
    ]
    own, its = (metrics_of(c).get("peak_rss_mib") for c in (config, than))
    memory = own / its if own and its else 1.0
    if any(one > other for one, other in counts) or memory > NO_MORE_MEMORY:
        return False
    return memory < LESS_MEMORY or any(one < other for one, other in counts)


def cheaper_rival(leaders: Sequence[Estimate], cheaper: Callable[[Config, Config], bool]) -> Estimate | None:
    """The best of the cheaper leaders that the first one is about as fast as; None where there is none."""
    near = (e for e in leaders[1:] if e.cost <= NEAR * leaders[0].cost)
    return next((e for e in near if cheaper(e.config, leaders[0].config)), None)


def affordable(left_s: float, pair_s: float) -> bool:
    """Whether there is time for a tie without taking any from the confirmation."""
    return left_s >= 1.08 * pair_s * (TIE_PAIRS + CONFIRMED_PAIRS)


def decide_tie(log_ratios: Sequence[float], final: bool) -> bool | None:
    """Whether the cheaper one is shown to be no worse, one look at `TIE_PAIRS` pairs; None before it.

    `log_ratios` are those of costs, the cheaper one's over the other's.
    """
    return shown_no_worse(log_ratios) if final or len(log_ratios) >= TIE_PAIRS else None
