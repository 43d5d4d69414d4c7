"""What a search is asked for, as one frozen value with its checks."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, QualityLevel, Workload
from tuner.errors import UsageError

Named = TypeVar("Named")

DEFAULT_BUDGET_S = 300.0
SHORTEST_BUDGET_S = 10.0
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class SearchRequest:
    """One search: `model` is a registered name or a source; None for engines and variants means all."""

    model: str | None
    workload: Workload
    quality: QualityLevel
    budget_s: float = DEFAULT_BUDGET_S
    trials: int | None = None
    engines: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    seed: int = 0
    fresh: bool = False
    wait: bool = False
    bounded: bool = False
    """Whether the user gave a budget or a number of trials, and so wants more measuring."""

    def to_json(self) -> dict[str, object]:
        """Plain values, as the store keeps them."""
        return {
            "model": self.model,
            "workload": self.workload.name,
            "quality": self.quality.name,
            "budget_s": self.budget_s,
            "trials": self.trials,
            "engines": self.engines,
            "variants": self.variants,
            "seed": self.seed,
        }


def parse_budget_s(text: str) -> float:
    """Seconds of a duration such as "60s", "5m", "1.5h" or "90".

    Raises UsageError for anything else and for less than the shortest budget.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_S:
        raise UsageError(f"budget '{text}' is not a duration: write it like 60s, 5m or 1h")
    seconds = float(match[1]) * _UNITS_S[match[2]]
    if not SHORTEST_BUDGET_S <= seconds < 7 * 86400:
        raise UsageError(
            f"budget '{text}' is {seconds:g} s: allowed is from "
            f"{SHORTEST_BUDGET_S:g} s to a week; try --budget 60s"
        )
    return seconds


def workload_named(name: str) -> Workload:
    """A built-in workload; UsageError with the nearest name for an unknown one."""
    return _named("workload", name, WORKLOADS)


def quality_named(name: str) -> QualityLevel:
    """A quality level; UsageError with the nearest name for an unknown one."""
    return _named("quality level", name, QUALITY_LEVELS)


def _named(what: str, name: str, known: Mapping[str, Named]) -> Named:
    if name in known:
        return known[name]
    raise UsageError(f"unknown {what} '{name}': allowed are {', '.join(known)}{near(name, known)}")


def near(name: str, known: Iterable[str]) -> str:
    """ "; did you mean X?" for the nearest of the known names, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
