"""Two objectives: what the search aims at by turns, and the front of what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle

from profiles.metrics import base_name, flat_name
from profiles.select import pareto_front
from profiles.vocabulary import Config, Objective
from tuner.engines.base import Phase
from tuner.search.ledger import Estimate
from tuner.search.limits import Metrics, is_unearned_p95
from tuner.search.objectives import MEASURED, cost, objective_named, predict, weights
from tuner.search.proposer import Aim
from tuner.search.space import Space

SHARES = (0.75, 0.5, 0.25, 0.1)
"""The first objective's weight, turn by turn; every other proposal is for it alone."""
NOTICEABLE = 0.99
"""What betters the second objective by less is not worth a place on the front."""


def front_of(values: Sequence[tuple[float, float]], objectives: Sequence[Objective]) -> list[int]:
    """The places of those that no other one betters in both, the best by the first objective first."""
    first, second = objectives
    standing = pareto_front(values, (first.direction, second.direction))
    kept: list[int] = []
    least = float("inf")
    for place in sorted(standing, key=lambda place: cost(first, values[place][0])):
        if cost(second, values[place][1]) < NOTICEABLE * least:
            kept.append(place)
            least = cost(second, values[place][1])
    return kept


class Both:
    """Weighs two objectives. `known` gives what was measured of a configuration as a whole (its memory)."""

    def __init__(
        self, space: Space, first: Objective, second: Objective, known: Callable[[Config], Metrics]
    ) -> None:
        self._space, self._first, self._second, self._known = space, first, second, known
        self._turns = cycle([turn for share in SHARES for turn in (None, share)])

    def values(self, estimate: Estimate) -> tuple[float, float] | None:
        """Both objectives of a configuration; None where the second is not known, or not earned."""
        name = self._second.metric
        if base_name(name) == name and name not in MEASURED:
            workload = self._space.workload
            return estimate.value, predict(self._second, workload, estimate.ttft_ms, estimate.itl_ms)
        known = self._known(estimate.config)
        second = known.get(flat_name(name))
        if second is None or is_unearned_p95(name, known):
            return None
        return estimate.value, second

    def front(self, estimates: Sequence[Estimate]) -> list[Estimate]:
        """Those that no other one betters in both, the best by the first objective first."""
        known = [(e, values) for e in estimates if (values := self.values(e)) is not None]
        places = front_of([values for _, values in known], (self._first, self._second))
        return [known[place][0] for place in places]

    def turn(self) -> float | None:
        """The weight of the first objective in the next proposal; None where it counts alone."""
        return next(self._turns)

    def aim(self, share: float, estimates: Sequence[Estimate]) -> tuple[Aim, Estimate] | None:
        """What to propose for when the first objective weighs `share`, and what is to be beaten by that.

        A weighted sum of both costs, each over its best; what a configuration takes of memory is taken from
        its variant. None while the second objective is not known of any.
        """
        known = [(e, values[1]) for e in estimates if (values := self.values(e)) is not None]
        if not known:
            return None
        least = min(e.cost for e, _ in known), min(cost(self._second, value) for _, value in known)
        rate = (1 - share) / least[1]
        if self._second.metric in MEASURED:
            sizes = {name: rate * size for name, size in self._sizes(known).items()}
            most = max(sizes.values())
            by_time = self._weights(share / least[0], 0.0)
            aim = Aim(by_time, lambda config: sizes.get((config.engine, config.variant), most))
        else:
            aim = Aim(self._weights(share / least[0], rate))
        return aim, min(
            (replace(e, cost=aim.cost(e.config, e.ttft_ms, e.itl_ms)) for e, _ in known), key=lambda e: e.cost
        )

    def _weights(self, first: float, second: float) -> dict[Phase, float]:
        workload = self._space.workload
        one = weights(self._first, workload)
        other = weights(objective_named(base_name(self._second.metric)), workload) if second else (0.0, 0.0)
        return {phase: first * a + second * b for phase, a, b in zip(Phase, one, other, strict=True)}

    def _sizes(self, known: Sequence[tuple[Estimate, float]]) -> dict[tuple[str, str], float]:
        """The least of each engine's variants: two engines may call other files by one name."""
        found: dict[tuple[str, str], float] = {}
        for estimate, size in known:
            name = (estimate.config.engine, estimate.config.variant)
            found[name] = min(size, found.get(name, size))
        return found
