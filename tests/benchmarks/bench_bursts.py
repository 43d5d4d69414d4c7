"""Searches beside neighbours that come in bursts, and what each detector catches of them and misses."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from probes.machine import probe
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS
from tests.benchmarks.load import Load
from tests.benchmarks.winners import compare, ratio_of, search, write_side
from tuner.events import ignore
from tuner.home import Home
from tuner.measurement.bench import Bench
from tuner.measurement.contamination import causes, detector
from tuner.models.source import DEMO
from tuner.request import SearchRequest
from tuner.setup import build_space, open_workshop

PATTERNS = {"0.1 of 0.2 s": (0.1, 0.2), "1 of 2 s": (1.0, 2.0), "10 of 20 s": (10.0, 20.0)}
DETECTORS = ("run delay", "others' CPU", "steal", "memory pressure", "io pressure", "canary")
WITHIN = 1.05
MORE_TIME = 2.5
ROUNDS = 40
MOST_S = 25.0
"""Of observing one pattern: a round that is disturbed may take seconds."""
DISTURBED = 0.05
"""Seconds of a burst within a round, or this share of it if less, from which it counts as disturbed."""


def bursts(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """Winners of searches beside bursts against a quiet one's, both compared on the quiet machine.

    Where a winner is not within 5 % and the search did not say that it was loaded, it is searched again
    with 2.5 times the time.
    """
    quiet = search(folder / "quiet", options.engine, "--budget", f"{options.budget}s")
    winner = write_side(folder / "quiet.json", quiet.document["best"])
    return [_beside(folder / name.replace(" ", ""), name, winner, options) for name in PATTERNS]


def _beside(folder: Path, name: str, winner: Path, options: Namespace) -> dict[str, Any]:
    factor = 1.0
    row = _searched(folder / "1", name, winner, options, options.budget)
    if not _good_enough(row):
        factor = MORE_TIME
        row = _searched(folder / "2", name, winner, options, round(MORE_TIME * options.budget))
    return {
        **row,
        "time_factor": factor,
        "limit": f"ratio <= {WITHIN:g} within {MORE_TIME:g} times the time, or it says loaded",
        "kept": _good_enough(row),
    }


def _good_enough(row: Mapping[str, Any]) -> bool:
    return row["ratio"] <= WITHIN or row["said"] == "loaded"


def _searched(folder: Path, name: str, winner: Path, options: Namespace, seconds: int) -> dict[str, Any]:
    with Load(*PATTERNS[name]):
        ran = search(folder, options.engine, "--budget", f"{seconds}s", "--seed", str(options.seed))
    found = ran.document
    compared = compare(folder, write_side(folder / "winner.json", found["best"]), winner, options.engine)
    return {
        "what": f"winner beside bursts of {name} over the quiet winner",
        "command": f"{ran.command}; {compared.command}",
        "said": found["conditions"],
        **ratio_of(compared.document),
        "dropped_rounds": found["dropped_rounds"],
        "causes": dict(causes_in(Home(folder / "home"), found["study"])),
    }


def causes_in(home: Home, study: str) -> Counter[str]:
    """What disturbed a study's rounds by detector: the dropped ones, and those accepted under load."""
    with Store.open(home.database) as store:
        keys = {trial.measurement_key for trial in store.trials(study)}
        rounds = [r for key in keys if key is not None for r in store.rounds(key)]
    return Counter(
        [detector(r.dropped) for r in rounds if r.dropped is not None]
        + [
            name.removeprefix("disturbed.")
            for r in rounds
            for name in r.facts
            if name.startswith("disturbed.")
        ]
    )


def detectors(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """Rounds on all CPUs while the schedule of the bursts is known: who saw them, who did not."""
    request = SearchRequest(
        DEMO, WORKLOADS["chat"], QUALITY_LEVELS["any"], engines=(options.engine,), variants=("source",)
    )
    home = Home(folder / "home")
    with Store.open(home.database) as store:
        shop = open_workshop(request, probe(), store, home, ignore)
        try:
            default = build_space(request, shop).default(options.engine)
            cpus = shop.machine.effective.cpu_count
            config = default.with_settings(n_threads=cpus, n_threads_batch=cpus)
            with shop.bench(seed=options.seed) as bench:
                bench.measure(config, rounds=2)
                history: deque[Mapping[str, float]] = deque(maxlen=50)
                seen = [_observe(bench, config, None, history)]
                usual_ms = median(ms for ms, *_ in seen[0])
                for pattern in PATTERNS.values():
                    with Load(*pattern) as load:
                        seen.append(_observe(bench, config, load, history, least_s=2 * pattern[1]))
        finally:
            shop.close()
    command = f"python -m tests.benchmarks.run detectors --engine {options.engine}"
    names = ("nothing else", *PATTERNS)
    return [detector_row(name, rounds, usual_ms, command) for name, rounds in zip(names, seen, strict=True)]


Seen = tuple[float, float, frozenset[str]]
"""A round's milliseconds, the seconds of it that were busy, and the detectors that struck."""


def _observe(
    bench: Bench,
    config: Any,
    load: Load | None,
    history: deque[Mapping[str, float]],
    *,
    least_s: float = 0.0,
) -> list[Seen]:
    """`ROUNDS` rounds, or as many as fit into `MOST_S`, over at least `least_s`."""
    found: list[Seen] = []
    began_s = time.monotonic()
    while (took_s := time.monotonic() - began_s) < least_s or (len(found) < ROUNDS and took_s < MOST_S):
        measured = bench.measure(config, rounds=1, retries=0)
        end_s = time.monotonic()
        facts = measured.rounds[0].facts
        busy_s = load.busy_between(end_s - facts["wall_ns"] / 1e9, end_s) if load else 0.0
        struck = frozenset(detector(cause) for cause in causes(facts, history))
        if not struck:
            history.append(facts)
        found.append((measured.rounds[0].wall_ms, busy_s, struck))
    return found


def detector_row(name: str, rounds: list[Seen], usual_ms: float, command: str) -> dict[str, Any]:
    met = [r for r in rounds if r[1] >= min(DISTURBED, DISTURBED * r[0] / 1000)]
    spared = [r for r in rounds if r not in met]
    missed = [r for r in met if not r[2]]
    return {
        "what": f"detectors beside {name}",
        "command": command,
        "rounds": len(rounds),
        "disturbed": len(met),
        "caught": len(met) - len(missed),
        "by": {one: sum(one in struck for _, _, struck in met) for one in DETECTORS},
        "missed": len(missed),
        "missed_slowdown": max((ms / usual_ms for ms, *_ in missed), default=None),
        "false_flags": sum(bool(struck) for _, _, struck in spared),
        "undisturbed": len(spared),
    }
