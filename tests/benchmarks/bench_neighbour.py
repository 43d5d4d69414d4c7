"""What a search is worth beside a neighbour that keeps one core busy, and what ten minutes add to one."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from probes.machine import probe
from tests.benchmarks.load import Load
from tests.benchmarks.winners import compare, ratio_of, search, write_side

LEAST_GAIN = 2.0
WITHIN = 1.03


def neighbour(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """The profile found beside a busy neighbour against itself with as many threads as CPUs, which wait as
    they do by default. Both run a short workload: the crowded one takes seconds for a token."""
    cpus = probe().effective.cpu_count
    crowded = {"n_threads": cpus, "n_threads_batch": cpus, "wait_policy": "default"}
    shorter = folder / "shorter.yaml"
    shorter.write_text("prompt_tokens: 16\noutput_tokens: 4\n")
    with Load.steady():
        ran = search(folder, options.engine, "--budget", f"{options.budget}s", "--seed", str(options.seed))
        found = ran.document
        best = write_side(folder / "best.json", found["best"])
        rival = write_side(folder / "crowded.json", found["best"], **crowded)
        compared = compare(folder, best, rival, options.engine, "--workload", str(shorter), budget="200s")
    numbers = ratio_of(compared.document)
    gain = 1 / numbers["ratio"]
    return [
        {
            "what": f"beside a neighbour: all {cpus} CPUs and default waiting over the profile",
            "command": f"{ran.command}; {compared.command}",
            "said": found["conditions"],
            "gain": gain,
            **numbers,
            "settings": found["best"]["config"],
            "limit": f"gain >= {LEAST_GAIN:g} and the report says loaded",
            "kept": found["conditions"] == "loaded" and gain >= LEAST_GAIN,
        }
    ]


def search_10m(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """A search of `--budget` seconds against one with another seed that uses all of `--long` seconds."""
    runs = {
        "short": ("--budget", f"{options.budget}s", "--seed", str(options.seed)),
        "long": ("--budget", f"{options.long}s", "--seed", str(options.seed + 1), "--full-budget"),
    }
    searches = {name: search(folder / name, options.engine, *more) for name, more in runs.items()}
    sides = [write_side(folder / f"{name}.json", ran.document["best"]) for name, ran in searches.items()]
    compared = compare(folder / "short", sides[0], sides[1], options.engine)
    numbers = ratio_of(compared.document)
    return [
        {
            "what": f"{options.budget} s of search over {options.long} s",
            "command": "; ".join([*(ran.command for ran in searches.values()), compared.command]),
            **numbers,
            "found": [ran.document["best"]["variant"] for ran in searches.values()],
            "trials": [sum(ran.document["trials"].values()) for ran in searches.values()],
            "seconds": [round(ran.seconds) for ran in searches.values()],
            "limit": f"ratio <= {WITHIN:g}",
            "kept": numbers["ratio"] <= WITHIN,
        }
    ]
