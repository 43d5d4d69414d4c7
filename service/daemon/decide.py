"""What to do next, from what is known: one action with a reason that a person understands."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from service.daemon.drift import Chart
from service.daemon.memory import Circumstances, Memory


class Action(StrEnum):
    """What the watcher can do; all but WAIT, ADOPT and ROLL_BACK measure."""

    WAIT = "wait"
    ADOPT = "adopt"
    ROLL_BACK = "roll back"
    CHECK = "check"
    CONFIRM = "confirm"
    SEARCH = "search"
    COMPARE = "compare"


MOST_FAILURES = 3
"""After so many a candidate is left alone, until a search finds another one."""
MEASURES = frozenset({Action.CHECK, Action.CONFIRM, Action.SEARCH, Action.COMPARE})


@dataclass(frozen=True)
class Candidate:
    """A published profile that answers the question under today's circumstances and is not refused.

    `is_same` says that it is the configuration that runs already.
    """

    id: str
    is_same: bool = False


@dataclass(frozen=True)
class Sight:
    """What a look at the machine, the store and the generator shows; `None` where there is nothing to say.

    `running` is the profile that runs (None: the engine's defaults) and `question` what it answers;
    `previous` ran before it. `known` is the best published profile for today's question, `candidate` one that
    is newer than what runs.
    """

    now_s: float
    circumstances: Circumstances
    running: str | None
    question: tuple[str, str]
    previous: str | None = None
    known: str | None = None
    candidate: Candidate | None = None
    broken: str | None = None
    unable: str | None = None
    busy: str | None = None


@dataclass(frozen=True)
class Limits:
    """When things are due."""

    check_s: float
    retry_s: float
    daily_s: float
    patience: int
    """Sets in a row that must show the whole machine slower before a search."""


@dataclass(frozen=True)
class Charts:
    """The charts as they stand."""

    relative: Chart
    common: Chart
    live: Chart

    @property
    def is_alarmed(self) -> bool:
        """Whether any of them is."""
        return self.relative.is_alarmed or self.common.is_alarmed or self.live.is_alarmed


@dataclass(frozen=True)
class Decision:
    """One action. `reason` is why; `profile` what it is about, None for the engine's defaults."""

    action: Action
    reason: str
    profile: str | None = None
    waits_for: str | None = None
    """Why an action that is wanted is not done now."""

    def __str__(self) -> str:
        return f"{self.action}: {self.reason}" + (f"; waits: {self.waits_for}" if self.waits_for else "")


def decide(sight: Sight, memory: Memory, charts: Charts, limits: Limits) -> Decision:
    """The next action: what can't wait, else what is wanted most and allowed now, else WAIT.

    Nothing that measures is decided while `sight.busy`, without time left today, or soon after it failed.
    """
    if sight.unable is not None:
        return Decision(Action.WAIT, sight.unable)
    urgent = _urgent(sight, memory)
    if urgent is not None:
        return urgent
    wanted = _wanted(sight, memory, charts, limits)
    if wanted is None:
        return Decision(Action.WAIT, "nothing has changed")
    held = _held(wanted, sight, memory, limits) if wanted.action in MEASURES else None
    if held is None:
        return wanted
    return Decision(Action.WAIT, f"{wanted.action} is wanted: {wanted.reason}", wanted.profile, held)


def _urgent(sight: Sight, memory: Memory) -> Decision | None:
    if sight.question != sight.circumstances.question:
        return _or_defaults(Decision(Action.ADOPT, _other_question(sight), sight.known), memory)
    why = None
    if sight.broken is not None and sight.running is not None:
        why = f"it does not run: {sight.broken}"
    elif memory.trial is not None and memory.trial.worse_windows >= 2:
        why = "live latencies are worse than before its promotion"
    return None if why is None else _or_defaults(Decision(Action.ROLL_BACK, why, sight.previous), memory)


def _or_defaults(decision: Decision, memory: Memory) -> Decision:
    """The decision, about the engine's defaults where its profile was seen not to run."""
    return replace(decision, profile=None) if failure_name(decision) in memory.failed else decision


def _other_question(sight: Sight) -> str:
    fingerprint, _ = sight.question
    what = "the model file is another" if fingerprint == sight.circumstances.fingerprint else (
        "the machine is another, or has other CPUs for this process"
    )  # fmt: skip
    return f"{what}: its own profile is known" if sight.known else f"{what}: nothing is known yet"


def _wanted(sight: Sight, memory: Memory, charts: Charts, limits: Limits) -> Decision | None:
    offer = _offer(sight.candidate, memory)
    if offer is not None:
        return offer
    why = search_reason(sight, memory, limits)
    if why is not None:
        return Decision(Action.SEARCH, why)
    if charts.is_alarmed and memory.slow_sets == 0:
        what = (
            "live latencies rose" if charts.live.is_alarmed else "the last set was slower than it should be"
        )
        return Decision(Action.CONFIRM, what)
    due = memory.measured_at_s is None or not 0 <= sight.now_s - memory.measured_at_s < limits.check_s
    if due:
        return Decision(Action.CHECK, "the regular look at what runs and its control is due")
    return None


def _offer(candidate: Candidate | None, memory: Memory) -> Decision | None:
    """What a candidate is good for; None where there is none, or it failed too often."""
    if candidate is None:
        return None
    why = memory.searched_for or f"{candidate.id} was published"
    if candidate.is_same:
        offer = Decision(Action.ADOPT, f"{why}; the same configuration is the best again", candidate.id)
    else:
        offer = Decision(Action.COMPARE, why, candidate.id)
    failures, _ = memory.failed.get(failure_name(offer), (0, 0.0))
    return offer if failures < MOST_FAILURES else None


def search_reason(sight: Sight, memory: Memory, limits: Limits) -> str | None:
    """Why a search is wanted; None where none is."""
    if memory.accepted is None:
        return "nothing is published for this machine, model and workload"
    changed = memory.accepted.changes(sight.circumstances)
    if changed:
        return "; ".join(changed)
    if memory.confirmed is not None:
        share = math.expm1(memory.confirmed)
        return f"the running configuration is {share:.0%} slower, beside its control, than it was"
    if memory.slow_sets >= limits.patience:
        return f"the machine was slower as a whole in {memory.slow_sets} sets in a row"
    return None


def _held(wanted: Decision, sight: Sight, memory: Memory, limits: Limits) -> str | None:
    """Why something that measures must wait."""
    if sight.busy is not None:
        return sight.busy
    if memory.spent.seconds >= limits.daily_s:
        return f"today's {limits.daily_s / 60:.0f} minutes are spent"
    count, at_s = memory.failed.get(failure_name(wanted), (0, 0.0))
    pause_s = limits.retry_s * 2.0 ** min(count - 1, 6)
    if count and 0 <= sight.now_s - at_s < pause_s:
        return f"it failed {count} times, the next try is {pause_s / 60:.0f} minutes after the last"
    return None


def failure_name(decision: Decision) -> str:
    """Under which name failures of an action are counted."""
    return f"{decision.action} {decision.profile or ''}".strip()
