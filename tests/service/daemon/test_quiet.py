"""Quiet machines, allowed hours, and the day's time."""

from __future__ import annotations

from datetime import datetime, time

import pytest

from probes.conditions import Change, Conditions
from service.daemon.quiet import Hours, Spent, Thresholds, disturbance, outside_hours

QUIET = {"busy_share": 0.01, "steal_share": 0.0, "cpu_stalled_share": 0.0, "thermal_events": 0}


def change(**changes: float | None) -> Change:
    return Change(elapsed_s=1.0, throttled_periods=None, throttled_s=None, **{**QUIET, **changes})


@pytest.mark.parametrize(
    ("seen", "now", "said"),
    [
        ({}, Conditions(), None),
        ({"busy_share": None, "steal_share": None, "thermal_events": None}, Conditions(), None),
        ({"busy_share": 0.34}, Conditions(), "other work uses 34% of the CPUs (allowed: 10%)"),
        ({"steal_share": 0.05}, Conditions(), "the host takes 5% of the CPUs' time (allowed: 2%)"),
        ({}, Conditions(cpu_pressure=40.0), "tasks wait for a CPU 40% of the time (allowed: 10%)"),
        ({"thermal_events": 2}, Conditions(), "heat slows the CPUs down"),
        ({}, Conditions(is_on_battery=True), "it runs on battery"),
    ],
)
def test_what_disturbs_is_named(seen: dict[str, float | None], now: Conditions, said: str | None):
    assert disturbance(change(**seen), now, Thresholds()) == said


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("22:00-06:00", ["22:00", "03:30"], ["06:00", "12:00"]), ("09:00-17:30", ["09:00", "17:29"], ["17:30"])],
)
def test_hours_may_go_past_midnight(text: str, inside: list[str], outside: list[str]):
    hours = Hours.parse(text)
    assert str(hours) == text
    assert all(hours.hold(time.fromisoformat(at)) for at in inside)
    assert not any(hours.hold(time.fromisoformat(at)) for at in outside)


@pytest.mark.parametrize("text", ["22-6", "25:00-01:00", "", "22:00"])
def test_wrong_hours_are_refused(text: str):
    with pytest.raises(ValueError, match=r"hours|hour must be"):
        Hours.parse(text)


def test_any_hour_is_right_where_none_is_given():
    noon = datetime(2026, 1, 1, 12)
    assert outside_hours(noon, ()) is None
    assert outside_hours(noon, [Hours.parse("22:00-06:00")]) == (
        "it is 12:00, measuring is allowed 22:00-06:00"
    )


def test_a_clock_step_gives_at_most_one_more_days_time():
    spent = Spent("2026-01-02", 100.0)
    assert spent.on("2026-01-02").plus(5).seconds == 105
    # Forward by years and back again: the days between are not given.
    assert spent.on("2031-05-05").on("2026-01-02").seconds == 0
    assert Spent("2031-05-05", 100.0).on("2026-01-02").seconds == 0
