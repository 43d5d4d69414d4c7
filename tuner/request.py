"""What a search is asked for, as one frozen value with its checks."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, cast

from profiles.metrics import METRICS, base_name, is_metric
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, Limit, QualityLevel, Setting, Workload
from tuner.errors import UsageError
from tuner.search.objectives import PREDICTABLE as OBJECTIVES

Named = TypeVar("Named")

DEFAULT_BUDGET_S = 300.0
SHORTEST_BUDGET_S = 10.0
LENGTHS: Mapping[str, tuple[int, int]] = {
    "prompt_tokens": (1, 1_000_000),
    # One token has no gap, so decoding could not be timed.
    "output_tokens": (2, 1_000_000),
    "streams": (1, 256),
}
"""What a workload is made of, with the allowed range."""
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class SearchRequest:
    """One search: `model` is a registered name or a source; None for engines and variants means all.

    `space` maps a setting to the values to search in place of the engine's. `leave_cores` effective CPUs
    are kept free. `storage` is the database's URL or path; None for the data folder's own.
    """

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
    limits: tuple[Limit, ...] = ()
    leave_cores: int = 0
    answers_unchanged: bool = False
    space: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    storage: str | None = None

    def options(self) -> list[str]:
        """The options that ask the same question again, without budget and seed."""
        words = [] if self.model is None else ["--model", shlex.quote(self.model)]
        known = WORKLOADS.get(self.workload.name)
        if known is None or known.context_tokens != self.workload.context_tokens:
            words += ["--workload", "FILE"]
        elif known.name != "chat":
            words += ["--workload", known.name]
        if self.workload.objective != (known or self.workload).objective:
            words += ["--objective", self.workload.objective]
        if self.quality.name != "near-lossless":
            words += ["--quality", self.quality.name]
        words += [word for limit in self.limits for word in ("--limit", shlex.quote(str(limit)))]
        for name, values in (("--engines", self.engines), ("--variants", self.variants)):
            words += [name, ",".join(values)] if values else []
        words += ["--answers-unchanged"] if self.answers_unchanged else []
        words += ["--leave-cores", str(self.leave_cores)] if self.leave_cores else []
        words += ["--space", "FILE"] if self.space else []
        return words + (["--storage", shlex.quote(self.storage)] if self.storage else [])

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
            "objective": self.workload.objective,
            "limits": [str(limit) for limit in self.limits],
            "leave_cores": self.leave_cores,
            "answers_unchanged": self.answers_unchanged,
            "space": {name: list(values) for name, values in self.space.items()},
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


def objective_metric(text: str) -> str:
    """The metric that --objective names; UsageError for none that a search can optimize, or for several."""
    name = text.strip().removesuffix(".p50")
    if "," in name:
        raise UsageError(
            f"objective '{text}' names several metrics: one is allowed; give the others as --limit"
        )
    if name in OBJECTIVES:
        return name
    raise UsageError(
        f"unknown objective '{name}': allowed are {', '.join(OBJECTIVES)}{near(name, OBJECTIVES)}"
    )


def parse_limit(text: str) -> Limit:
    """A limit such as "ttft_ms<=100" or "itl_ms.p95 <= 20".

    Raises UsageError for another form, an unknown metric (with the nearest one) and a value that is no
    finite number.
    """
    match = re.fullmatch(r"\s*([^<>=\s]+)\s*(<=|>=)\s*(\S+)\s*", text)
    if match is None:
        raise UsageError(f"limit '{text}' is not understood: write it as 'METRIC<=VALUE' or 'METRIC>=VALUE'")
    metric, operator, number = match.groups()
    if not is_metric(metric):
        hint = near(base_name(metric), METRICS) or f"; allowed are {', '.join(METRICS)}"
        raise UsageError(f"limit '{text}': unknown metric '{metric}'{hint}")
    if metric.endswith(".max_of_n"):
        raise UsageError(f"limit '{text}': a maximum of n samples grows with n; limit the .p95 instead")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"limit '{text}': '{number}' is not a number; write it like {metric}{operator}100")
    return Limit(metric.removesuffix(".p50"), cast("Literal['<=', '>=']", operator), value)


def parse_limits(texts: Iterable[str]) -> tuple[Limit, ...]:
    """Every limit once; UsageError as `parse_limit`."""
    return tuple(dict.fromkeys(parse_limit(text) for text in texts))


def with_objective(workload: Workload, metric: str | None) -> Workload:
    """The workload with another objective; None keeps its own. UsageError as `objective_metric`."""
    return workload if metric is None else replace(workload, objective=objective_metric(metric))


def length(name: str, value: object, origin: str) -> int:
    """A part of a workload, checked; UsageError names `origin` and the allowed range."""
    low, high = LENGTHS[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{origin}={value}: allowed is a whole number from {low} to {high}")
    return value


def with_lengths(
    workload: Workload,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    streams: int | None = None,
) -> Workload:
    """The workload with other lengths, named after them; None keeps one.

    Raises UsageError for a length out of its range.
    """
    given = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens, "streams": streams}
    changes = {
        name: length(name, value, f"--{name.replace('_', '-')}")
        for name, value in given.items()
        if value is not None
    }
    changed = replace(
        workload,
        prompt_tokens=changes.get("prompt_tokens", workload.prompt_tokens),
        output_tokens=changes.get("output_tokens", workload.output_tokens),
        streams=changes.get("streams", workload.streams),
    )
    return workload if changed == workload else replace(changed, name=lengths_name(changed))


def lengths_name(workload: Workload) -> str:
    """A name from the lengths alone: "64+32", "64+32x8" for eight streams."""
    several = f"x{workload.streams}" if workload.streams > 1 else ""
    return f"{workload.prompt_tokens}+{workload.output_tokens}{several}"


def _named(what: str, name: str, known: Mapping[str, Named]) -> Named:
    if name in known:
        return known[name]
    raise UsageError(f"unknown {what} '{name}': allowed are {', '.join(known)}{near(name, known)}")


def near(name: str, known: Iterable[str]) -> str:
    """ "; did you mean X?" for the nearest of the known names, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
