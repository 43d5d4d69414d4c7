"""Searches in stores of their own, and their winners side by side in another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.commands import Ran, cputune
from tuner.models.source import DEMO

COMPARE_BUDGET = "150s"


def prepare(folder: Path, engine: str) -> None:
    """Make the demo model's variants ahead, so that no search waits for them."""
    made = cputune(folder, "models", "prepare", DEMO, "--engines", engine, "--json").document
    if not made["variants"]:
        raise RuntimeError(f"no variant of {DEMO} could be made")


def search(folder: Path, engine: str, *more: str) -> Ran:
    """A fresh search of the demo model's chat workload in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder, engine)
    return cputune(folder, "search", "--engines", engine, "--fresh", *more, "--json")


def write_side(path: Path, result: Mapping[str, Any], **changes: object) -> Path:
    """A RESULT's configuration as a file that `compare` reads, some settings changed."""
    settings = {**result["config"], **{name: v for name, v in changes.items() if name in result["config"]}}
    side = {"engine": result["engine"], "variant": result["variant"], "settings": settings}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(side))
    return path


def compare(
    folder: Path, a: Path | str, b: Path | str, engine: str, *more: str, budget: str = COMPARE_BUDGET
) -> Ran:
    """`cputune compare` of two sides of the demo model's chat workload."""
    sides = (str(a), str(b), "--engines", engine, "--budget", budget)
    return cputune(folder, "compare", *sides, *more, "--json")


def ratio_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a comparison that a row shows."""
    ratio = document["ratio"]
    return {
        "ratio": ratio["estimate"],
        "interval": [round(ratio["low"], 3), round(ratio["high"], 3)],
        "confidence": ratio["confidence"],
        "verdict": document["verdict"],
        "pairs": document["pairs"],
        "compared": document["conditions"],
    }
