"""What is decided from what is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from service.daemon.decide import Action, Candidate, Charts, Limits, Sight, decide
from service.daemon.drift import Reference, chart
from service.daemon.memory import Circumstances, Memory, Trial
from service.daemon.quiet import Spent

HERE = Circumstances("f00d", "m0", "llama_cpp 1", "6.1", "performance")
LIMITS = Limits(check_s=86_400, retry_s=600, daily_s=3600, patience=3)
CALM = Charts(*(chart(0.016, 0.05, 365) for _ in range(3)))
ALARMED = replace(CALM, relative=replace(CALM.relative, sum=1.0))
SIGHT = Sight(now_s=1e6, circumstances=HERE, running="p-1", question=HERE.question, previous="p-0")
MEMORY = Memory(accepted=HERE, reference=Reference(-0.2, 0.02, 8, 5.0), measured_at_s=1e6 - 3600)


def decided(sight: dict[str, Any], memory: dict[str, Any], charts: Charts = CALM) -> tuple[Action, str, Any]:
    found = decide(replace(SIGHT, **sight), replace(MEMORY, **memory), charts, LIMITS)
    return found.action, found.reason, found.profile


@pytest.mark.parametrize(
    ("sight", "memory", "action", "reason", "profile"),
    [
        ({}, {}, Action.WAIT, "nothing has changed", None),
        ({}, {"measured_at_s": None}, Action.CHECK, "regular look", None),
        ({}, {"measured_at_s": 0.0}, Action.CHECK, "regular look", None),
        ({"now_s": 1e6 - 7200}, {}, Action.CHECK, "regular look", None),
        ({"running": None}, {"accepted": None}, Action.SEARCH, "nothing is published", None),
        ({"running": None}, {}, Action.WAIT, "nothing has changed", None),
        (
            {"circumstances": replace(HERE, engine_build="llama_cpp 2")},
            {},
            Action.SEARCH,
            "the engine was llama_cpp 1, is llama_cpp 2",
            None,
        ),
        ({"circumstances": replace(HERE, kernel="6.2")}, {}, Action.SEARCH, "the kernel was 6.1", None),
        (
            {"circumstances": replace(HERE, governors="powersave")},
            {},
            Action.SEARCH,
            "the governor was performance, is powersave",
            None,
        ),
        ({"circumstances": replace(HERE, governors="")}, {}, Action.WAIT, "nothing has changed", None),
        (
            {"circumstances": replace(HERE, fingerprint="beef"), "known": "p-7"},
            {},
            Action.ADOPT,
            "the machine is another, or has other CPUs for this process: its own profile is known",
            "p-7",
        ),
        (
            {"circumstances": replace(HERE, model_digest="m1")},
            {},
            Action.ADOPT,
            "the model file is another: nothing is known yet",
            None,
        ),
        ({"candidate": Candidate("p-9")}, {}, Action.COMPARE, "p-9 was published", "p-9"),
        (
            {"candidate": Candidate("p-9")},
            {"searched_for": "the kernel was 6.0"},
            Action.COMPARE,
            "the kernel was 6.0",
            "p-9",
        ),
        (
            {"candidate": Candidate("p-9")},
            {"failed": {"compare p-9": (3, 0.0)}},
            Action.WAIT,
            "nothing has changed",
            None,
        ),
        ({"broken": "SIGILL"}, {"failed": {"roll back p-0": (1, 0.0)}}, Action.ROLL_BACK, "SIGILL", None),
        ({"candidate": Candidate("p-9", is_same=True)}, {}, Action.ADOPT, "the same configuration", "p-9"),
        ({"broken": "SIGILL"}, {}, Action.ROLL_BACK, "it does not run: SIGILL", "p-0"),
        ({}, {"trial": Trial({}, worse_windows=1)}, Action.WAIT, "nothing has changed", None),
        ({}, {"trial": Trial({}, worse_windows=2)}, Action.ROLL_BACK, "live latencies are worse", "p-0"),
        ({}, {"confirmed": 0.182}, Action.SEARCH, "20% slower, beside its control, than it was", None),
        ({}, {"slow_sets": 2}, Action.WAIT, "nothing has changed", None),
        ({}, {"slow_sets": 3}, Action.SEARCH, "slower as a whole in 3 sets in a row", None),
        ({"unable": "degraded: disk full"}, {"measured_at_s": None}, Action.WAIT, "degraded", None),
    ],
)
def test_one_action_with_its_reason(
    sight: dict[str, Any], memory: dict[str, Any], action: Action, reason: str, profile: str | None
):
    found = decided(sight, memory)
    assert found[0] is action
    assert reason in found[1]
    assert found[2] == profile


def test_an_alarm_is_confirmed_before_anything_else_is_done():
    assert decided({}, {}, ALARMED)[0] is Action.CONFIRM
    assert decided({}, {"slow_sets": 1}, ALARMED)[0] is Action.WAIT


@pytest.mark.parametrize(
    ("sight", "memory", "waits_for"),
    [
        ({"busy": "a request runs"}, {}, "a request runs"),
        ({}, {"spent": Spent("x", 3600.0)}, "today's 60 minutes are spent"),
        ({}, {"failed": {"check": (3, 1e6 - 60)}}, "it failed 3 times, the next try is 40 minutes"),
    ],
)
def test_what_measures_waits_and_says_for_what(sight: dict[str, Any], memory: dict[str, Any], waits_for: str):
    known = replace(MEMORY, measured_at_s=None, **memory)
    found = decide(replace(SIGHT, **sight), known, CALM, LIMITS)
    assert found.action is Action.WAIT
    assert "check is wanted" in found.reason
    assert waits_for in (found.waits_for or "")


@pytest.mark.parametrize("at_s", [1e6 - 3000, 1e6 + 10])
def test_a_failure_is_forgotten_in_time_also_where_the_clock_was_put_back(at_s: float):
    memory = replace(MEMORY, measured_at_s=None, failed={"check": (3, at_s)})
    assert decide(SIGHT, memory, CALM, LIMITS).action is Action.CHECK


def test_what_does_not_measure_does_not_wait():
    busy = {"busy": "a request runs", "broken": "SIGILL"}
    assert decided(busy, {})[0] is Action.ROLL_BACK
