"""How long a search takes, what it finds, and how quickly its answer comes again."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from tests.benchmarks.commands import Ran, cputune
from tuner.models.source import DEMO

OVERTIME_S = 15.0
SECOND_S = 5.0


def search_60s(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """The demo model under each workload, its variants made before: ends within 75 s of a 60 s budget."""
    _prepare(folder, options)
    return [_searched(folder, options, workload) for workload in options.workloads.split(",")]


def second_search(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """The same question again, without a budget, measures nothing."""
    _prepare(folder, options)
    first = _search(folder, options, "chat", "--budget", f"{options.budget}s").document
    again = _search(folder, options, "chat")
    return [
        {
            "what": "a second search",
            "command": again.command,
            "seconds": again.seconds,
            "first_s": first["elapsed_s"],
            "measured_now": again.document["measured_now"],
            "limit": f"seconds <= {SECOND_S:g} and nothing measured",
            "kept": again.seconds <= SECOND_S and not again.document["measured_now"],
        }
    ]


def _prepare(folder: Path, options: Namespace) -> None:
    made = cputune(folder, "models", "prepare", DEMO, "--engines", options.engine, "--json").document
    if not made["variants"]:
        raise RuntimeError(f"no variant of {DEMO} could be made")


def _search(folder: Path, options: Namespace, workload: str, *more: str) -> Ran:
    return cputune(folder, "search", "--workload", workload, "--engines", options.engine, *more, "--json")


def _searched(folder: Path, options: Namespace, workload: str) -> dict[str, Any]:
    ran = _search(folder, options, workload, "--budget", f"{options.budget}s")
    document = ran.document
    default, best, speedup = document["baseline"], document["best"], document["speedup"]
    name = f"{document['objective']}.p50"
    return {
        "what": f"default against best, {workload}",
        "command": ran.command,
        "ratio": speedup["ratio"],
        "interval": [round(speedup["low"], 3), round(speedup["high"], 3)],
        "confidence": speedup["confidence"],
        "status": document["status"],
        "conditions": document["conditions"],
        f"default {name}": default["metrics"][name],
        f"best {name}": best["metrics"][name],
        "variants": f"{default['variant']} -> {best['variant']}",
        "kl_divergence": best["metrics"].get("kl_divergence"),
        "top1_agreement": best["metrics"].get("top1_agreement"),
        "trials": sum(document["trials"].values()),
        "seconds": ran.seconds,
        "limit": f"seconds <= {options.budget + OVERTIME_S:g}",
        "kept": ran.seconds <= options.budget + OVERTIME_S,
    }
