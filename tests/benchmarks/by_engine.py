"""All engines in one search against each engine alone: `python -m tests.benchmarks.by_engine FILE...`.

Every search has the same seconds, and what it advises at their end counts. Truth and quality are those of
all engines: an engine's own default, which a search of this engine alone would take as given, must keep
near-lossless here as any variant must. The search over all engines stays within 3 % of the best single one
where its median cost over the seeds and its 95th percentile do. Variants count as made.

`made-up:NAME` in place of a file is one of `report.MADE_UP`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from statistics import median

from probes.errors import CputuneError
from tests.benchmarks.replay import replay_judge
from tests.benchmarks.report import opened
from tests.benchmarks.strategies import searched
from tuner.request import DEFAULT_BUDGET_S
from tuner.search.space import Space

ALL = "all engines"
WITHIN = 1.03


@lru_cache(maxsize=1)
def spaces(name: str) -> Mapping[str, Space]:
    """What is searched: the space of all engines, and each engine's part of it."""
    space = opened(name)[0].space
    alone = {part.engine.name: replace(space, engines=(part,)) for part in space.engines}
    return {ALL: space, **alone}


def cost_at_end(name: str, over: str, seconds: float, seed: int) -> float:
    """What the advice of one search costs; infinite where it has none that keeps the quality level."""
    land, truth, _ = opened(name)
    try:
        advice = searched(land, spaces(name)[over], seconds, seed).at(seconds)
    except CputuneError as failure:
        # It comes from another process, and errors with fields of their own don't.
        raise RuntimeError(f"{name}: {over} with seed {seed}: {failure}") from None
    return truth.cost(advice) if replay_judge(land).feasible(advice) else math.inf


@dataclass(frozen=True)
class Compared:
    """The costs of all searches, one for each seed, and what the best configuration costs."""

    landscape: str
    seconds: float
    best: float
    costs: Mapping[str, Sequence[float]]

    @property
    def best_alone(self) -> str:
        """The engine whose own search ends best, by the median."""
        return min(set(self.costs) - {ALL}, key=lambda name: (median(self.costs[name]), name))

    @property
    def is_within(self) -> bool:
        """Whether the search over all engines keeps the limit."""
        ours, alone = self.costs[ALL], self.costs[self.best_alone]
        return all(
            part(ours) < math.inf and part(ours) <= WITHIN * part(alone) for part in (median, percentile_95)
        )

    def table(self) -> str:
        """The comparison as Markdown."""
        seeds = len(self.costs[ALL])
        lines = [
            f"{self.landscape}: {len(self.costs) - 1} engines, {self.seconds:g} s each, {seeds} seeds",
            "",
            "| search over | median / p95 regret in % | cost over that of the best alone, median / p95 |",
            "|---|---|---|",
        ]
        alone = self.costs[self.best_alone]
        for name, costs in self.costs.items():
            regrets = (_percent(part(costs) / self.best - 1) for part in (median, percentile_95))
            ratios = (_ratio(part(costs), part(alone)) for part in (median, percentile_95))
            lines.append(f"| {name} | {' / '.join(regrets)} | {' / '.join(ratios)} |")
        kept = "kept" if self.is_within else "NOT KEPT"
        lines += ["", f"within {WITHIN - 1:.0%} of the best alone ({self.best_alone}): {kept}"]
        return "\n".join(lines) + "\n"


def percentile_95(costs: Sequence[float]) -> float:
    """The smallest of them that at least 95 % don't exceed."""
    return sorted(costs)[math.ceil(0.95 * len(costs)) - 1]


def _percent(regret: float) -> str:
    return f"{100 * regret:.1f}" if regret < math.inf else "no answer"


def _ratio(cost: float, other: float) -> str:
    return f"{cost / other:.3f}" if max(cost, other) < math.inf else "-"


def compare(name: str, seeds: int, *, seconds: float, jobs: int) -> Compared:
    """All searches of one landscape; SystemExit where it has one engine only."""
    _, truth, _ = opened(name)
    searches = spaces(name)
    if len(searches) < 3:
        raise SystemExit(f"{name}: holds one engine, nothing to compare")
    with ProcessPoolExecutor(jobs) as pool:
        costs = {
            over: tuple(pool.map(partial(cost_at_end, name, over, seconds), range(seeds)))
            for over in searches
        }
    return Compared(name, seconds, truth.cost(truth.best), costs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table for each landscape; 1 where the limit is not kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.by_engine", description=__doc__)
    parser.add_argument("landscapes", nargs="+")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--horizon", type=float, default=DEFAULT_BUDGET_S, help="seconds of every search")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args(arguments)
    kept = True
    for name in asked.landscapes:
        found = compare(name, asked.seeds, seconds=asked.horizon, jobs=asked.jobs)
        sys.stdout.write(found.table() + "\n")
        sys.stdout.flush()
        kept &= found.is_within
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
