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
from profiles.vocabulary import (
    QUALITY_LEVELS,
    WORKLOADS,
    Limit,
    Objective,
    QualityLevel,
    Setting,
    Workload,
)
from tuner.errors import UsageError
from tuner.export import Command
from tuner.search.objectives import PREDICTABLE as OBJECTIVES
from tuner.search.objectives import SECOND as SECOND_OBJECTIVES
from tuner.search.objectives import objective_of, second_named

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
EVEN_SHARE = 0.5
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
    command: Command | None = None
    """The user's own command, the baseline in place of the default; its model is the search's."""
    busy_share: float = 0.0
    """The weight of times beside a busy neighbour; 0: only quiet ones count."""
    second_objective: str | None = None
    """A metric to weigh against the workload's objective: the answer has the front of both."""
    full_budget: bool = False
    """Whether to search on where nothing better is likely any more."""

    def __post_init__(self) -> None:
        if self.busy_share and self.second_objective is not None:
            raise UsageError(
                f"--load {load_text(self.busy_share)} weighs one objective: two are allowed on a quiet"
                " machine only; drop the second one, or give it as --limit"
            )

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What to make best: the first decides what is published."""
        second = () if self.second_objective is None else (second_named(self.second_objective),)
        return (objective_of(self.workload), *second)

    def options(self) -> list[str]:
        """The options that ask the same question again, without budget and seed."""
        words = [] if self.command is None else ["--from", shlex.quote(self.command.text)]
        words += [] if self.model is None else ["--model", shlex.quote(self.model)]
        known, named = workload_words(self.workload)
        words += named
        if self.second_objective or self.workload.objective != known.objective:
            words += ["--objective", ",".join(objective.metric for objective in self.objectives)]
        if self.quality.name != "near-lossless":
            words += ["--quality", self.quality.name]
        words += [word for limit in self.limits for word in ("--limit", shlex.quote(str(limit)))]
        for name, values in (("--engines", self.engines), ("--variants", self.variants)):
            words += [name, ",".join(values)] if values else []
        words += ["--answers-unchanged"] if self.answers_unchanged else []
        words += ["--leave-cores", str(self.leave_cores)] if self.leave_cores else []
        words += ["--space", "FILE"] if self.space else []
        words += ["--load", load_text(self.busy_share)] if self.busy_share else []
        return words + (["--storage", shlex.quote(without_password(self.storage))] if self.storage else [])

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
            "objective": ",".join(objective.metric for objective in self.objectives),
            "limits": [str(limit) for limit in self.limits],
            "leave_cores": self.leave_cores,
            "answers_unchanged": self.answers_unchanged,
            "space": {name: list(values) for name, values in self.space.items()},
            "from": None if self.command is None else self.command.text,
            "load": load_text(self.busy_share),
            "full_budget": self.full_budget,
        }


def without_password(url: str) -> str:
    """A database's URL as it may be printed and stored; paths stay as they are."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1@", url)


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


def parse_load(text: str) -> float:
    """The weight of times beside a busy neighbour: "quiet", "background" (half), or "background:0.3".

    Raises UsageError for anything else.
    """
    mode, colon, share = text.strip().partition(":")
    if mode == "quiet" and not colon:
        return 0.0
    if mode == "background" and not colon:
        return EVEN_SHARE
    if mode == "background" and re.fullmatch(r"0?\.\d+|1(\.0+)?", share) and float(share) > 0:
        return float(share)
    hint = near(mode, ("quiet", "background"))
    raise UsageError(
        f"load '{text}' is unknown: allowed are quiet, background, and background:SHARE with the share of"
        f" the time under load, above 0 and up to 1, such as background:0.3{hint}"
    )


def load_text(busy_share: float) -> str:
    """As `parse_load` reads it."""
    if not busy_share:
        return "quiet"
    return "background" if busy_share == EVEN_SHARE else f"background:{busy_share:g}"


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
    if name in SECOND_OBJECTIVES:
        raise UsageError(
            f"objective '{name}' can only be the second of two, such as response_ms,{name}, or a --limit"
        )
    raise UsageError(
        f"unknown objective '{name}': allowed are {', '.join(OBJECTIVES)}{near(name, OBJECTIVES)}"
    )


def parse_limit(text: str) -> Limit:
    """A limit such as "ttft_ms<=100" or "itl_ms.p95 <= 20".

    Raises UsageError for another form, an unknown metric (with the nearest one), a value that is no finite
    number, and one that nothing could keep.
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
    if operator == "<=" and value < 0:
        raise UsageError(f"limit '{text}': nothing keeps it, since no metric is below 0; give a value above")
    return Limit(metric.removesuffix(".p50"), cast("Literal['<=', '>=']", operator), value)


def parse_limits(texts: Iterable[str]) -> tuple[Limit, ...]:
    """Every limit once; UsageError as `parse_limit`."""
    return tuple(dict.fromkeys(parse_limit(text) for text in texts))


def objective_metrics(text: str) -> tuple[str, str | None]:
    """The one or two metrics that --objective names, separated by a comma.

    Raises UsageError for one that no search can optimize, for the same twice, and for more than two.
    """
    names = [name.strip().removesuffix(".p50") for name in text.split(",")]
    if len(names) == 1:
        return objective_metric(text), None
    if len(names) > 2 or not all(names):
        raise UsageError(
            f"objective '{text}': allowed are one metric or two separated by a comma; give others as --limit"
        )
    first, second = names
    if first == second:
        raise UsageError(f"objective '{text}' names {first} twice: name two metrics, or one")
    if second not in SECOND_OBJECTIVES:
        raise UsageError(
            f"unknown second objective '{second}': allowed are {', '.join(SECOND_OBJECTIVES)}"
            f"{near(second, SECOND_OBJECTIVES)}"
        )
    return objective_metric(first), second


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


def workload_words(workload: Workload) -> tuple[Workload, list[str]]:
    """The options that name a workload, and the built-in one that they start from: itself where only a file
    says it."""
    for base in WORKLOADS.values():
        given = {name: getattr(workload, name) for name in LENGTHS}
        other = {name: value for name, value in given.items() if value != getattr(base, name)}
        if replace(with_lengths(base, **other), objective=workload.objective) == workload:
            words = [] if base.name == "chat" else ["--workload", base.name]
            lengths = [(f"--{name.replace('_', '-')}", str(value)) for name, value in other.items()]
            return base, [*words, *(word for pair in lengths for word in pair)]
    return workload, ["--workload", "FILE"]


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
