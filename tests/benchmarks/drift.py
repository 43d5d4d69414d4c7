"""What a machine whose speed drifts does to a search, with and without a control: replays.

`python -m tests.benchmarks.drift --seeds 20`. The corrected search measures the default again after every
fifth measurement and divides all times by how the control's have changed since its first.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from profiles.vocabulary import Config, RoundSamples
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.replay import ReplayRunner, Truth, replay_judge
from tests.benchmarks.report import opened
from tests.benchmarks.strategies import NoRecorder
from tests.support.surface import FakeClock
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.measurement.asked import Kind
from tuner.measurement.measurement import Measurement
from tuner.search.budget import Budget
from tuner.search.objectives import objective_of
from tuner.search.search import Search

Drift = Callable[[float], float]
"""How much slower the machine is at a share of the search's time."""
DRIFTS: Mapping[str, Drift] = {
    "none": lambda share: 1.0,
    "slows down by 15 %": lambda share: 1 + 0.15 * share,
    "speeds up by 15 %": lambda share: 1.15 - 0.15 * share,
    "steps by 15 % at a quarter": lambda share: 1.15 if share > 0.25 else 1.0,
    "waves of 5 %, five of them": lambda share: 1 + 0.05 * math.sin(10 * math.pi * share),
}
CONTROL_EVERY = 5
REMEMBERED = 3


class Drifting:
    """A runner on a machine whose speed drifts."""

    def __init__(self, runner: ReplayRunner, drift: Callable[[], float]) -> None:
        self._runner = runner
        self._drift = drift

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        measured = self._runner.measure(config, rounds=rounds, kind=kind, phases=phases, fresh=fresh)
        return _scaled(measured, dict.fromkeys(Phase, self._drift()))


class Controlled:
    """A runner that divides times by how a control's have changed."""

    def __init__(self, runner: Drifting, control: Config) -> None:
        self._runner = runner
        self._control = control
        self._seen: list[RoundSamples] = []
        self._measured = 0

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        if self._measured % CONTROL_EVERY == 0:
            again = self._runner.measure(self._control, rounds=1 if self._seen else REMEMBERED)
            self._seen.extend(again.rounds)
        self._measured += 1
        measured = self._runner.measure(config, rounds=rounds, kind=kind, phases=phases, fresh=fresh)
        return _scaled(measured, {phase: 1 / self._factor(phase) for phase in Phase})

    def _factor(self, phase: Phase) -> float:
        values = [r.ttft_ms[0] if phase is Phase.PREFILL else median(r.gaps_ms[0]) for r in self._seen]
        return median(values[-REMEMBERED:]) / median(values[:REMEMBERED])


def _scaled(measured: Measurement, by: Mapping[Phase, float]) -> Measurement:
    return replace(
        measured,
        rounds=tuple(
            replace(
                r,
                ttft_ms=tuple(value * by[Phase.PREFILL] for value in r.ttft_ms),
                gaps_ms=tuple(tuple(gap * by[Phase.DECODE] for gap in stream) for stream in r.gaps_ms),
            )
            for r in measured.rounds
        ),
    )


def advised(land: Landscape, seconds: float, seed: int, drift: Drift, *, controlled: bool) -> Config:
    """What the search would confirm first at its end."""
    clock = FakeClock()
    default = land.space.default(land.space.engines[0].engine.name)
    drifting = Drifting(ReplayRunner(land, clock, seed=seed), lambda: drift(clock.now_s / seconds))

    def spend(more_s: float) -> None:
        clock.now_s += more_s

    search = Search(
        land.space,
        objective_of(land.space.workload),
        runner=Controlled(drifting, default) if controlled else drifting,
        recorder=NoRecorder(),
        judge=replay_judge(land, spend),
        digest_of=lambda engine, label: f"{engine}/{label}",
        budget=Budget.begin(clock, seconds),
        trials=None,
        seed=seed,
        observer=lambda _: None,
    )
    return search.run(default)[0].config


def regrets(name: str, drift: Drift, seeds: int, share: float, *, controlled: bool) -> list[float]:
    """The regret of each seed's advice, in percent, sorted."""
    land, truth, grid_s = opened(name)
    assert isinstance(truth, Truth)
    return sorted(
        100 * truth.regret(advised(land, share * grid_s, seed, drift, controlled=controlled))
        for seed in range(seeds)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Print median, 95th percentile and mean of the regret."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.drift", description=__doc__)
    parser.add_argument("landscapes", nargs="*", default=["made-up:additive-2", "made-up:simulated-2"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--drift", default="", help="only those whose name has this in it")
    parser.add_argument("--share", type=float, default=0.05, help="of the grid's cost, as the budget")
    options = parser.parse_args(argv)
    for name in options.landscapes:
        for label, drift in DRIFTS.items():
            for controlled in (False, True) if options.drift in label else ():
                found = regrets(name, drift, options.seeds, options.share, controlled=controlled)
                p95 = found[min(math.ceil(0.95 * len(found)), len(found)) - 1]
                sys.stdout.write(
                    f"{name}, {label}, {'control' if controlled else 'as it is'}:"
                    f" median {median(found):.1f} %, p95 {p95:.1f} %, mean {sum(found) / len(found):.2f} %\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
