"""Confirmation: fresh process pairs of the default and the best, interleaved, one log ratio a pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from profiles.vocabulary import Config, Interval, Objective, RoundSamples, Workload
from tuner.errors import WorkerError
from tuner.events import Event, Observer
from tuner.measurement.bench import Measurement
from tuner.measurement.statistics import LOOKS, look_interval, ratio_interval
from tuner.search.budget import PROVISIONAL_PAIRS, Budget
from tuner.search.ledger import Estimate
from tuner.search.ports import Runner

PROVISIONAL_CONFIDENCE = 0.95
FEWEST_PAIRS = 3
LOST_PAIRS = 3
"""So many pairs may be lost to failures before the confirmation gives up."""

Status = Literal["confirmed", "provisional", "no_gain"]
Side = Literal["default", "best"]


@dataclass(frozen=True)
class Pair:
    """The objective's value in one fresh process of each."""

    default: float
    best: float


@dataclass(frozen=True)
class Confirmation:
    """What the pairs say: the speed-up (default over best, inverted for rates) with its interval.

    `measured` holds each side's last process, for what is measured once a process (memory, load).
    """

    speedup: Interval
    status: Status
    pairs: tuple[Pair, ...]
    measured: Mapping[Side, Measurement]


@dataclass(frozen=True)
class Plan:
    """How a confirmation runs: `rounds` full workloads a process, pairs of about `pair_s` seconds."""

    rounds: int
    pair_s: float
    longest_pairs: int = LOOKS[-1]


TWO_ROUNDS_SHARE = 0.35
"""Two rounds a process are run where six pairs of them fit into this share of the budget."""


def plan(baseline: Estimate, best: Estimate, startup_s: float, total_s: float, workload: Workload) -> Plan:
    """Rounds and length of the pairs: two rounds a process where time allows, else one."""
    round_s = sum(e.ttft_ms + (workload.output_tokens - 1) * e.itl_ms for e in (baseline, best)) / 1000
    pair_s = {rounds: 2 * startup_s + rounds * round_s for rounds in (1, 2)}
    rounds = 2 if PROVISIONAL_PAIRS * pair_s[2] <= TWO_ROUNDS_SHARE * total_s else 1
    return Plan(rounds, pair_s[rounds])


def speedup_log(objective: Objective, pair: Pair) -> float:
    """log(default / best) of something to minimize, log(best / default) of a rate: above 0 is a gain."""
    ratio = math.log(pair.default / pair.best)
    return ratio if objective.direction == "minimize" else -ratio


def judge(log_ratios: Sequence[float], *, final: bool) -> tuple[Interval, Status] | None:
    """The verdict on the pairs so far; None while more are needed.

    The looks at 8, 12 and 16 pairs share an error (`statistics.look_interval`). `final` says that no more
    pairs will come: then the answer is provisional, or that no gain is shown.
    """
    if len(log_ratios) in LOOKS:
        interval = look_interval(log_ratios)
        if interval.low > 1.0:
            return interval, "confirmed"
    if not final:
        return None
    interval = ratio_interval(log_ratios, PROVISIONAL_CONFIDENCE)
    return interval, "provisional" if interval.low > 1.0 else "no_gain"


def confirm(
    runner: Runner,
    configs: Mapping[Side, Config],
    objective: Objective,
    value_of: Callable[[Sequence[RoundSamples]], float],
    *,
    plan: Plan,
    budget: Budget,
    earlier: Sequence[Pair] = (),
    keep: Callable[[Pair, Mapping[Side, Measurement]], None],
    observer: Observer,
) -> Confirmation | None:
    """Run pairs in ABBA order until a look decides or the budget ends; None where too few succeeded.

    `value_of` gives a process's objective from its rounds. `earlier` are pairs that an interrupted
    confirmation of the same two left behind. `keep` is called after each pair, before the next one starts,
    so that nothing finished is lost. Samples of the search are never used: they chose the winner, and
    would flatter it.
    """
    pairs = list(earlier)
    measured: dict[Side, Measurement] = {}
    lost, pair_s = 0, plan.pair_s
    while True:
        out_of_time = budget.left_s < pair_s and len(pairs) >= FEWEST_PAIRS
        final = out_of_time or len(pairs) >= plan.longest_pairs or lost >= LOST_PAIRS
        if final and len(pairs) < FEWEST_PAIRS:
            return None
        verdict = judge([speedup_log(objective, pair) for pair in pairs], final=final)
        if verdict is not None:
            return Confirmation(*verdict, tuple(pairs), measured)
        began_s = budget.elapsed_s
        try:
            now = _run_pair(runner, configs, plan.rounds, first="default" if len(pairs) % 2 == 0 else "best")
            pair = Pair(value_of(now["default"].rounds), value_of(now["best"].rounds))
        except WorkerError as failure:
            lost += 1
            observer(Event("note", f"a confirmation pair was lost: {failure.reason}"))
            continue
        measured = now
        pairs.append(pair)
        keep(pair, now)
        pair_s = max(pair_s, budget.elapsed_s - began_s) if len(pairs) == 1 else budget.elapsed_s - began_s
        ratios = [math.exp(speedup_log(objective, pair)) for pair in pairs]
        observer(
            Event(
                "pair",
                "",
                {"pair": len(pairs), "ratio": ratios[-1], "median": median(ratios), "left_s": budget.left_s},
            )
        )


def _run_pair(
    runner: Runner, configs: Mapping[Side, Config], rounds: int, *, first: Side
) -> dict[Side, Measurement]:
    order: tuple[Side, Side] = ("default", "best") if first == "default" else ("best", "default")
    return {side: runner.measure(configs[side], rounds=rounds, kind="full", fresh=True) for side in order}
