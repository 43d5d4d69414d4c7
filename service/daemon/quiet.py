"""Whether now is a time to measure: a quiet machine, allowed hours, and what is left of the day's time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time

from probes.conditions import Change, Conditions


@dataclass(frozen=True)
class Thresholds:
    """Above these a machine is not quiet; shares are of the usable CPUs' time, 0 to 1."""

    busy_share: float = 0.10
    steal_share: float = 0.02
    cpu_pressure_percent: float = 10.0


def disturbance(change: Change, now: Conditions, limits: Thresholds) -> str | None:
    """What other work goes on, by two snapshots and their difference; None on a quiet machine."""
    found = (
        (change.busy_share, limits.busy_share, "other work uses {:.0%} of the CPUs"),
        (change.steal_share, limits.steal_share, "the host takes {:.0%} of the CPUs' time"),
        (
            None if now.cpu_pressure is None else now.cpu_pressure / 100,
            limits.cpu_pressure_percent / 100,
            "tasks wait for a CPU {:.0%} of the time",
        ),
    )
    for value, limit, text in found:
        if value is not None and value > limit:
            return f"{text.format(value)} (allowed: {limit:.0%})"
    if change.thermal_events:
        return "heat slows the CPUs down"
    return "it runs on battery" if now.is_on_battery else None


@dataclass(frozen=True)
class Hours:
    """A time of day at which measuring is allowed; it may go past midnight."""

    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> Hours:
        """From "22:00-06:00"; ValueError for anything else."""
        match = re.fullmatch(r"\s*(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)\s*", text)
        if match is None:
            raise ValueError(f"hours '{text}': write them like 22:00-06:00")
        hour, minute, last_hour, last_minute = (int(part) for part in match.groups())
        return cls(time(hour, minute), time(last_hour, last_minute))

    def hold(self, now: time) -> bool:
        """Whether a time of day lies within."""
        if self.begin <= self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end

    def __str__(self) -> str:
        return f"{self.begin:%H:%M}-{self.end:%H:%M}"


def outside_hours(now: datetime, allowed: Sequence[Hours]) -> str | None:
    """Why the hour is wrong; None where it is right, or any hour is."""
    if not allowed or any(hours.hold(now.time()) for hours in allowed):
        return None
    return f"it is {now:%H:%M}, measuring is allowed {', '.join(map(str, allowed))}"


@dataclass(frozen=True)
class Spent:
    """Seconds spent on measuring on a day, an ISO date of local time."""

    day: str = ""
    seconds: float = 0.0

    def on(self, today: str) -> Spent:
        """What was spent today; a clock that is put right gives at most one more day's time."""
        return self if today == self.day else Spent(today)

    def plus(self, seconds: float) -> Spent:
        """After some more seconds."""
        return replace(self, seconds=self.seconds + seconds)
