"""How often a comparison of a configuration with itself names a winner: `python -m tests.benchmarks.aa`.

Pairs are drawn from recorded process values (`--values`, as `aa_live` writes them), else made up with noise
like a machine's, and go through the verdict code of `cputune compare`, look by look.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from profiles.store import Store
from profiles.vocabulary import WORKLOADS
from tests.benchmarks.commands import cputune
from tests.benchmarks.winners import COMPARE_BUDGET, prepare
from tuner.compare import decide
from tuner.home import Home
from tuner.search.objectives import objective_of

LIMIT = 0.03
PROCESS_NOISE = 0.02
ROUND_NOISE = 0.015
OUTLIERS = 0.06
"""The share of rounds that something disturbed unseen, by a third on average."""
DRIFT = 0.01
"""How far the whole machine's speed moves from one process to the next, at random."""
ROUNDS = 2
OBJECTIVE = objective_of(WORKLOADS["chat"])


def made_up(rng: random.Random) -> Iterator[float]:
    """Process values of one configuration in the order of measuring, without end."""
    speed = 1.0
    while True:
        speed *= math.exp(rng.gauss(0, DRIFT))
        own = rng.lognormvariate(0, PROCESS_NOISE)
        rounds = (
            rng.lognormvariate(0, ROUND_NOISE) * (1 + rng.expovariate(3) if rng.random() < OUTLIERS else 1)
            for _ in range(ROUNDS)
        )
        yield speed * own * sum(rounds) / ROUNDS


def recorded(values: Sequence[Sequence[float]], rng: random.Random) -> Iterator[float]:
    """Stretches of neighbouring values from recorded runs, so that their drift stays in."""
    while True:
        run = rng.choice(values)
        start = rng.randrange(len(run) - 1)
        yield from run[start : start + 2]


def verdict_of(values: Iterator[float], pairs: int) -> str:
    """What `compare` says of a configuration against itself, ABBA, with at most `pairs` pairs."""
    logs: list[float] = []
    while True:
        final = len(logs) >= pairs
        found = decide(logs, OBJECTIVE, final=final) if logs else None
        if found is not None:
            return found[1]
        first, second = next(values), next(values)
        logs.append(math.log(first / second) * (-1) ** len(logs))


def replays(
    count: int, pairs: int, seed: int, draw: Callable[[random.Random], Iterator[float]] = made_up
) -> Counter[str]:
    """The verdicts of so many comparisons."""
    return Counter(verdict_of(draw(random.Random(f"{seed}/{n}")), pairs) for n in range(count))


def false_share(found: Counter[str]) -> float:
    """The share that names a winner."""
    return (found["a"] + found["b"]) / found.total()


def aa_live(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """`compare default default`, live; the values of its processes are kept with `--out`."""
    prepare(folder, options.engine)
    command = ("compare", "default", "default", "--engines", options.engine, "--budget", COMPARE_BUDGET)
    runs = [cputune(folder, *command, "--json") for _ in range(options.runs)]
    found = Counter(run.document["verdict"] for run in runs)
    if options.out:
        Path(options.out).write_text(json.dumps(process_values(Home(folder / "home"))))
    ratios = [run.document["ratio"]["estimate"] for run in runs]
    return [
        {
            "what": "compare of the default with itself, live",
            "command": runs[0].command,
            "runs": len(runs),
            "verdicts": dict(found),
            "false": found["a"] + found["b"],
            "ratios": [round(ratio, 4) for ratio in sorted(ratios)],
            "dropped_rounds": sum(run.document["dropped_rounds"] for run in runs),
        }
    ]


def process_values(home: Home) -> list[list[float]]:
    """Each comparison's process values in the order of measuring: a b, b a, a b."""
    with Store.open(home.database) as store:
        comparisons = [c for study in store.studies() for c in store.comparisons(study.id)]
        return [
            [
                value
                for number, pair in enumerate(store.pairs(c.id))
                for value in (pair.a_values + pair.b_values)[:: -1 if number % 2 else 1]
            ]
            for c in comparisons
        ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the verdicts by the number of pairs that a budget ends at; 1 where the limit is not kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.aa", description=__doc__)
    parser.add_argument("--replays", type=int, default=1000)
    parser.add_argument("--pairs", default="6,7,8,11,16", help="most pairs of a comparison")
    parser.add_argument("--values", help="a file of `aa_live --out` in place of made-up noise")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    draw: Callable[[random.Random], Iterator[float]] = made_up
    if options.values:
        runs = [run for run in json.loads(Path(options.values).read_text()) if len(run) > 1]
        draw = partial(recorded, runs)
    kept = True
    for pairs in map(int, options.pairs.split(",")):
        found = replays(options.replays, pairs, options.seed, draw)
        share = false_share(found)
        kept &= share <= LIMIT
        counts = ", ".join(f"{name} {count}" for name, count in found.most_common())
        sys.stdout.write(f"at most {pairs:>2} pairs: {100 * share:.1f} % false differences ({counts})\n")
    sys.stdout.write(f"limit {100 * LIMIT:g} %: {'kept' if kept else 'NOT KEPT'}\n")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
