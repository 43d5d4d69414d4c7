"""Runs benchmarks by name: `python -m tests.benchmarks.run [NAME...] [--json]`; without a name, all."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

BENCHMARKS: Mapping[str, str] = {
    "search_60s": "tests.benchmarks.bench_search:search_60s",
    "second_search": "tests.benchmarks.bench_search:second_search",
    "trial_overhead": "tests.benchmarks.bench_trials:trial_overhead",
    "startup": "tests.benchmarks.bench_startup:startup",
    "search_10m": "tests.benchmarks.bench_neighbour:search_10m",
    "neighbour": "tests.benchmarks.bench_neighbour:neighbour",
    "serve": "tests.benchmarks.bench_serve:serve",
    "daemon": "tests.benchmarks.bench_daemon:daemon",
    "bursts": "tests.benchmarks.bench_bursts:bursts",
    "detectors": "tests.benchmarks.bench_bursts:detectors",
    "aa_live": "tests.benchmarks.aa:aa_live",
    "random_kills": "tests.benchmarks.bench_kills:random_kills",
    "large_store": "tests.benchmarks.bench_store:large_store",
    "web": "tests.benchmarks.bench_web:web",
    "engines": "tests.benchmarks.bench_engines:engines",
    "peers": "tests.benchmarks.bench_peers:peers",
    "advice": "tests.benchmarks.advice:advice",
}
"""Name -> "module:function". A function takes an empty folder and `Options`, and returns one row a result
with `what`, `command`, the numbers, and `limit` with `kept` where an issue sets one."""

Rows = list[dict[str, Any]]


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was measured; 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} [default: all]")
    parser.add_argument("--engine", default="llama_cpp", help="simulated tries the benchmarks themselves")
    parser.add_argument("--budget", type=int, default=60, help="seconds of a search")
    parser.add_argument("--workloads", default="chat,rag", help="of search_60s")
    parser.add_argument("--engines", help="of engines, with commas [default: all that run here]")
    parser.add_argument("--models", help="of engines, with commas [default: the demo model]")
    parser.add_argument("--long", type=int, default=600, help="seconds of the other search of search_10m")
    parser.add_argument("--runs", type=int, default=10, help="of aa_live")
    parser.add_argument("--out", help="where aa_live keeps process values for tests.benchmarks.aa --values")
    parser.add_argument("--kills", type=int, default=10, help="of random_kills")
    parser.add_argument("--repeats", type=int, default=5, help="of startup; the median is given")
    parser.add_argument("--passes", type=int, default=8, help="of peers: values of each configuration")
    parser.add_argument("--studies", type=int, default=200, help="of large_store and web")
    parser.add_argument("--trials", type=int, default=100_000, help="of large_store, all studies together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}: known are {', '.join(BENCHMARKS)}")
    found: dict[str, Rows] = {}
    for name in options.names or BENCHMARKS:
        module, _, function = BENCHMARKS[name].partition(":")
        measure = cast("Callable[[Path, argparse.Namespace], Rows]", getattr(import_module(module), function))
        with tempfile.TemporaryDirectory(prefix="cputune-bench-") as folder:
            found[name] = measure(Path(folder), options)
        if not options.json:
            sys.stdout.write(f"{name}\n" + "".join(map(as_text, found[name])))
            sys.stdout.flush()
    if options.json:
        sys.stdout.write(json.dumps({"schema_version": 1, "benchmarks": found}, indent=2) + "\n")
    return int(any(row.get("kept") is False for rows in found.values() for row in rows))


def as_text(row: Mapping[str, Any]) -> str:
    """A row as a paragraph: what, the numbers side by side, the command; one with Markdown as that."""
    if "markdown" in row:
        return f"\n{row['markdown']}\n"
    numbers = "  ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
        if name not in ("what", "command", "kept")
    )
    verdict = {True: "  kept", False: "  NOT KEPT", None: ""}[row.get("kept")]
    return f"  {row['what']}: {numbers}{verdict}\n    $ {row['command']}\n"


if __name__ == "__main__":
    sys.exit(main())
