"""Confirmation: fresh process pairs of the default and the best, one log ratio a pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from profiles.vocabulary import Config, Interval, Objective, RoundSamples
from tuner.errors import WorkerError
from tuner.events import Observer
from tuner.measurement.looks import FEWEST_FOR_A_CLAIM, LOOKS
from tuner.measurement.measurement import Measurement
from tuner.measurement.statistics import achieved_error, look_interval, ratio_interval
from tuner.search.budget import Budget
from tuner.search.disturbed import Count, is_sensitive
from tuner.search.pairs import FEWEST_PAIRS, Plan, Sides, Values, plan_pairs, run_pairs
from tuner.search.ports import Runner

__all__ = ["Confirmation", "Pair", "Plan", "Side", "Status", "confirm", "judge", "plan", "speedup_log"]

PROVISIONAL_CONFIDENCE = 0.95
OBVIOUS = 2.0
"""Where every pair gains this much, the fewest pairs claim it: equals have never been seen so far apart."""

Status = Literal["confirmed", "provisional", "no_gain"]
Side = Literal["default", "best"]
plan = plan_pairs


@dataclass(frozen=True)
class Pair:
    """The objective's value in one fresh process of each."""

    default: float
    best: float


@dataclass(frozen=True)
class Confirmation:
    """What the pairs say: the speed-up (default over best, inverted for rates) with its interval.

    `measured` holds each side's last process, for what is measured once a process (memory, load).
    `sensitive` is the side that other work disturbed more often than the other one.
    """

    speedup: Interval
    status: Status
    pairs: tuple[Pair, ...]
    measured: Mapping[Side, Measurement]
    sensitive: Side | None = None


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
    earlier = achieved_error([look for look in LOOKS if look < len(log_ratios)])
    interval = replace(interval, confidence=max(0.0, interval.confidence - earlier))
    obvious = len(log_ratios) >= FEWEST_PAIRS and min(log_ratios) > math.log(OBVIOUS)
    shown = interval.low > 1.0 and (len(log_ratios) >= FEWEST_FOR_A_CLAIM or obvious)
    return interval, "provisional" if shown else "no_gain"


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
    """Run pairs until a look decides or the budget ends; None where too few succeeded.

    `value_of` gives a process's objective from its rounds. `earlier` are pairs that an interrupted
    confirmation of the same two left behind. `keep` is called after each pair. Samples of the search are
    never used: they chose the winner, and would flatter it.
    """
    counts: dict[Side, Count] = {"default": Count(), "best": Count()}

    def keep_counted(values: Values, sides: Sides) -> None:
        named = _named(sides)
        counts.update((side, counts[side].plus(measured.rounds)) for side, measured in named.items())
        keep(Pair(*values), named)

    try:
        decision = run_pairs(
            runner,
            (configs["default"], configs["best"]),
            value_of,
            lambda values: speedup_log(objective, Pair(*values)),
            lambda log_ratios, final: judge(log_ratios, final=final),
            plan=plan,
            budget=budget,
            claim=FEWEST_FOR_A_CLAIM,
            earlier=[(pair.default, pair.best) for pair in earlier],
            keep=keep_counted,
            observer=observer,
        )
    except WorkerError:
        return None
    pairs: Sequence[Values] = decision.pairs
    return Confirmation(
        *decision.found,
        tuple(Pair(*values) for values in pairs),
        _named(decision.last) if decision.last else {},
        _sensitive(counts),
    )


def _sensitive(counts: Mapping[Side, Count]) -> Side | None:
    if is_sensitive(counts["best"], counts["default"]):
        return "best"
    return "default" if is_sensitive(counts["default"], counts["best"]) else None


def _named(sides: Sides) -> dict[Side, Measurement]:
    return {"default": sides[0], "best": sides[1]}
