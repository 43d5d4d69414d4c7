"""The best of each engine of a search, and why it did not win."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.search.ledger import Estimate
from tuner.search.space import Space
from tuner.search.trials import Trials


@dataclass(frozen=True)
class EngineBest:
    """An engine's best by the search's own rounds: one known to be feasible, else one not judged yet.

    `over_best` is its cost over that of the best of all engines; `lost` says why it was not that.
    """

    engine: str
    estimate: Estimate | None
    is_judged: bool
    over_best: float | None
    lost: str | None

    def lost_to(self, winner: str) -> str | None:
        """Why another engine's configuration is the answer; None for the engine of the answer itself.

        The rounds of a search decide nothing: who leads by them may not be confirmed.
        """
        return None if self.engine == winner else self.lost or "its lead was not confirmed"


def best_of_each(space: Space, trials: Trials) -> Iterator[EngineBest]:
    """One for each engine, in the order of the space."""
    certain, open_ = trials.certain(), trials.candidates()
    best = next(iter(certain), None)
    for part in space.engines:
        name = part.engine.name
        feasible = next((e for e in certain if e.config.engine == name), None)
        own = feasible or next((e for e in open_ if e.config.engine == name), None)
        if own is None:
            yield EngineBest(name, None, False, None, _why_nothing(name, trials))
            continue
        over_best = own.cost / best.cost if best else None
        lost = None
        if own is not best and over_best is not None:
            lost = f"{over_best:.2f}x as slow" if over_best >= 1 else "its quality was not judged in time"
        yield EngineBest(name, own, feasible is not None, over_best, lost)


def _why_nothing(engine: str, trials: Trials) -> str:
    if any(config.engine == engine for config in trials.ledger.configs):
        return "what was measured misses the quality level or a limit"
    return trials.last_reason(engine) or "not tried: the time was needed elsewhere"
