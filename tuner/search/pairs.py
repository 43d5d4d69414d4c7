"""Pairs of fresh processes of two configurations, interleaved: what confirming and comparing share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

from profiles.vocabulary import Config, RoundSamples, Workload
from tuner.errors import WorkerError
from tuner.events import Event, Observer
from tuner.measurement.looks import LOOKS
from tuner.measurement.measurement import Measurement
from tuner.search.budget import PROVISIONAL_PAIRS, Budget
from tuner.search.ledger import Estimate
from tuner.search.ports import Runner

FEWEST_PAIRS = 3
OVERRUN = 0.15
"""Of the budget: so much more for the last pairs of a claim, or all that came before them was for nothing."""
LOST_PAIRS = 3
"""So many pairs may be lost to failures before it is given up."""

Found = TypeVar("Found")
Values = tuple[float, float]
"""A metric's value in one fresh process of either side."""
Sides = tuple[Measurement, Measurement]


@dataclass(frozen=True)
class Plan:
    """How pairs run: `rounds` full workloads a process, pairs of about `pair_s` seconds."""

    rounds: int
    pair_s: float
    longest_pairs: int = LOOKS[-1]


TWO_ROUNDS_SHARE = 0.35
"""Two rounds a process are run where six pairs of them fit into this share of the budget."""


def plan_pairs(a: Estimate, b: Estimate, startup_s: float, total_s: float, workload: Workload) -> Plan:
    """Rounds and length of the pairs: two rounds a process where time allows, else one."""
    round_s = sum(e.ttft_ms + (workload.output_tokens - 1) * e.itl_ms for e in (a, b)) / 1000
    pair_s = {rounds: 2 * startup_s + rounds * round_s for rounds in (1, 2)}
    rounds = 2 if PROVISIONAL_PAIRS * pair_s[2] <= TWO_ROUNDS_SHARE * total_s else 1
    return Plan(rounds, pair_s[rounds])


@dataclass(frozen=True)
class Decision(Generic[Found]):
    """What the pairs came to; `last` holds the last pair's measurements, None where all pairs are earlier."""

    found: Found
    pairs: tuple[Values, ...]
    last: Sides | None


def run_pairs(
    runner: Runner,
    sides: tuple[Config, Config],
    value_of: Callable[[Sequence[RoundSamples]], float],
    log_ratio_of: Callable[[Values], float],
    decide: Callable[[Sequence[float], bool], Found | None],
    *,
    plan: Plan,
    budget: Budget,
    fewest: int = FEWEST_PAIRS,
    claim: int = 0,
    earlier: Sequence[Values] = (),
    keep: Callable[[Values, Sides], None],
    observer: Observer,
) -> Decision[Found]:
    """Run pairs in ABBA order until `decide` finds something or the budget ends.

    `value_of` gives a process's value from its rounds. `decide` takes the log ratios so far, and whether no
    more pairs will come: then it must find something. `keep` is called after each pair, before the next one
    starts, so that nothing finished is lost. At least `fewest` are run, whatever the budget, and as many as a
    `claim` needs where that takes little more than the budget.

    Raises WorkerError, the last failure, where too many pairs were lost to leave that many.
    """
    pairs = list(earlier)
    last: Sides | None = None
    lost, pair_s = 0, plan.pair_s
    while True:
        least = max(claim, fewest) if _is_worth_it(budget, claim - len(pairs), pair_s) else fewest
        out_of_time = budget.left_s < pair_s and len(pairs) >= least
        final = out_of_time or len(pairs) >= plan.longest_pairs or lost >= LOST_PAIRS
        found = decide([log_ratio_of(pair) for pair in pairs], final)
        if found is not None:
            return Decision(found, tuple(pairs), last)
        began_s = budget.elapsed_s
        try:
            now = _run_pair(runner, sides, plan.rounds, swapped=len(pairs) % 2 == 1)
            values = value_of(now[0].rounds), value_of(now[1].rounds)
        except WorkerError as failure:
            lost += 1
            observer(Event("note", f"a pair of processes was lost: {failure.reason}"))
            if lost >= LOST_PAIRS and len(pairs) < fewest:
                raise
            continue
        last = now
        pairs.append(values)
        keep(values, now)
        pair_s = max(pair_s, budget.elapsed_s - began_s) if len(pairs) == 1 else budget.elapsed_s - began_s
        ratios = [math.exp(log_ratio_of(pair)) for pair in pairs]
        observer(
            Event(
                "pair",
                "",
                {"pair": len(pairs), "ratio": ratios[-1], "median": median(ratios), "left_s": budget.left_s},
            )
        )


def _is_worth_it(budget: Budget, missing: int, pair_s: float) -> bool:
    """Whether the missing pairs end soon enough after the budget."""
    return budget.elapsed_s + missing * pair_s <= (1 + OVERRUN) * budget.total_s


def _run_pair(runner: Runner, sides: tuple[Config, Config], rounds: int, *, swapped: bool) -> Sides:
    a, b = sides
    if swapped:
        second, first = (runner.measure(c, rounds=rounds, kind="full", fresh=True) for c in (b, a))
    else:
        first, second = (runner.measure(c, rounds=rounds, kind="full", fresh=True) for c in (a, b))
    return first, second
