"""What a study ran in: the kernel and the clock's settings before it, throttling while it ran."""

from __future__ import annotations

from probes.conditions import Conditions, change_between, snapshot
from probes.machine import Machine
from probes.sysfs import Sysfs


def now(machine: Machine, sysfs: Sysfs | None = None) -> Conditions:
    """The conditions on the CPUs that this process may use."""
    return snapshot(sysfs or Sysfs(), machine.effective.cpus)


def around(machine: Machine, found: Conditions) -> dict[str, object]:
    """What a study keeps of the conditions it began in; what the system does not tell is left out."""
    told = {
        "kernel": machine.kernel,
        "governors": ", ".join(found.governors),
        "energy_preferences": ", ".join(found.energy_preferences),
        "is_turbo_on": found.is_turbo_on,
        "frequency_limit_mhz": found.frequency_limit_mhz,
        "frequency_max_mhz": found.frequency_max_mhz,
        "is_on_battery": found.is_on_battery,
    }
    return {name: value for name, value in told.items() if value not in (None, "") or name == "kernel"}


def throttling(before: Conditions, after: Conditions) -> dict[str, float]:
    """How often heat or a quota slowed the CPUs in between; what the system does not count is left out."""
    change = change_between(before, after)
    counts = {
        "thermal_events": change.thermal_events,
        "quota_periods": change.throttled_periods,
        "quota_s": change.throttled_s,
    }
    return {name: value for name, value in counts.items() if value is not None}
