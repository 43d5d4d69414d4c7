"""Takes snapshots of the conditions that disturb a measurement."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from probes.cgroup import Throttling, read_throttling
from probes.sysfs import Sysfs
from probes.topology import CPU_DIR

__all__ = ["Change", "Conditions", "change_between", "snapshot"]

_TICKS_PER_S = 100
"""USER_HZ, which Linux keeps at 100 for /proc whatever the kernel's own timer does."""
_SAMPLED_CPUS = 32
_SUPPLY_DIR = "sys/class/power_supply"


@dataclass(frozen=True)
class Conditions:
    """One moment. Counters grow since boot, averages are the kernel's; None is "not told".

    `busy_s`, `steal_s` and `total_s` are CPU seconds summed over the watched CPUs. Pressures are per cent of
    the last 10 s in which some task waited.
    """

    taken_at_s: float = 0.0
    governors: tuple[str, ...] = ()
    energy_preferences: tuple[str, ...] = ()
    is_turbo_on: bool | None = None
    frequency_now_mhz: float | None = None
    frequency_limit_mhz: float | None = None
    frequency_max_mhz: float | None = None
    thermal_throttle_count: int | None = None
    busy_s: float | None = None
    steal_s: float | None = None
    total_s: float | None = None
    load_1min: float | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    cpu_stalled_s: float | None = None
    is_on_battery: bool | None = None
    swap_used_bytes: int | None = None
    throttling: Throttling | None = None


@dataclass(frozen=True)
class Change:
    """What happened between two snapshots; shares are of the watched CPUs' time, 0 to 1."""

    elapsed_s: float
    busy_share: float | None
    steal_share: float | None
    cpu_stalled_share: float | None
    throttled_periods: int | None
    throttled_s: float | None
    thermal_events: int | None


def snapshot(sysfs: Sysfs, cpus: Sequence[int] = ()) -> Conditions:
    """The conditions now, over `cpus` (all when empty); takes about a millisecond, never raises."""
    sampled = list(cpus)[:: max(1, len(cpus) // _SAMPLED_CPUS)]
    busy_s, steal_s, total_s = _cpu_times(sysfs, cpus)
    cpu_pressure, cpu_stalled_s = _pressure(sysfs, "cpu")
    return Conditions(
        taken_at_s=time.monotonic(),
        governors=_distinct(sysfs, sampled, "scaling_governor"),
        energy_preferences=_distinct(sysfs, sampled, "energy_performance_preference"),
        is_turbo_on=_is_turbo_on(sysfs),
        frequency_now_mhz=_lowest_mhz(sysfs, sampled[:2], "scaling_cur_freq"),
        frequency_limit_mhz=_highest_mhz(sysfs, sampled, "scaling_max_freq"),
        frequency_max_mhz=_highest_mhz(sysfs, sampled, "cpuinfo_max_freq"),
        thermal_throttle_count=_thermal_count(sysfs, sampled),
        busy_s=busy_s,
        steal_s=steal_s,
        total_s=total_s,
        load_1min=_load_1min(sysfs),
        cpu_pressure=cpu_pressure,
        memory_pressure=_pressure(sysfs, "memory")[0],
        cpu_stalled_s=cpu_stalled_s,
        is_on_battery=_is_on_battery(sysfs),
        swap_used_bytes=_swap_used_bytes(sysfs),
        throttling=read_throttling(sysfs),
    )


def change_between(before: Conditions, after: Conditions) -> Change:
    """What the counters of two snapshots of the same CPUs say about the time between them."""
    elapsed = max(after.taken_at_s - before.taken_at_s, 1e-9)
    total = _grown(before.total_s, after.total_s)
    stalled = _grown(before.cpu_stalled_s, after.cpu_stalled_s)
    throttled = None
    if before.throttling is not None and after.throttling is not None:
        throttled = (before.throttling, after.throttling)
    events = _grown(before.thermal_throttle_count, after.thermal_throttle_count)
    return Change(
        elapsed_s=elapsed,
        busy_share=_share(_grown(before.busy_s, after.busy_s), total),
        steal_share=_share(_grown(before.steal_s, after.steal_s), total),
        cpu_stalled_share=_share(stalled, elapsed),
        throttled_periods=throttled
        and max(0, throttled[1].throttled_periods - throttled[0].throttled_periods),
        throttled_s=throttled and max(0.0, throttled[1].throttled_s - throttled[0].throttled_s),
        thermal_events=None if events is None else int(events),
    )


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)


def _distinct(sysfs: Sysfs, cpus: Sequence[int], name: str) -> tuple[str, ...]:
    told = (sysfs.text(f"{CPU_DIR}/cpu{cpu}/cpufreq/{name}") for cpu in cpus)
    return tuple(sorted({text for text in told if text}))


def _mhz(sysfs: Sysfs, cpus: Sequence[int], name: str) -> list[float]:
    told = (sysfs.integer(f"{CPU_DIR}/cpu{cpu}/cpufreq/{name}") for cpu in cpus)
    return [khz / 1000 for khz in told if khz is not None and khz > 0]


def _lowest_mhz(sysfs: Sysfs, cpus: Sequence[int], name: str) -> float | None:
    return min(_mhz(sysfs, cpus, name), default=None)


def _highest_mhz(sysfs: Sysfs, cpus: Sequence[int], name: str) -> float | None:
    return max(_mhz(sysfs, cpus, name), default=None)


def _is_turbo_on(sysfs: Sysfs) -> bool | None:
    no_turbo = sysfs.integer(f"{CPU_DIR}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == 0
    boost = sysfs.integer(f"{CPU_DIR}/cpufreq/boost")
    return None if boost is None else boost != 0


def _thermal_count(sysfs: Sysfs, cpus: Sequence[int]) -> int | None:
    counts = (sysfs.integer(f"{CPU_DIR}/cpu{cpu}/thermal_throttle/core_throttle_count") for cpu in cpus)
    told = [count for count in counts if count is not None and count >= 0]
    return sum(told) if told else None


def _cpu_times(sysfs: Sysfs, cpus: Sequence[int]) -> tuple[float | None, float | None, float | None]:
    """(busy, stolen, all) seconds of the watched CPUs; guest time is part of user time already."""
    wanted = {f"cpu{cpu}" for cpu in cpus} or {"cpu"}
    rows = [line.split() for line in sysfs.lines("proc/stat") if line.startswith("cpu")]
    ticks = [[int(word) for word in row[1:9] if word.isdecimal()] for row in rows if row[0] in wanted]
    ticks = [row for row in ticks if len(row) >= 4]
    if not ticks:
        return None, None, None
    total = sum(sum(row) for row in ticks)
    idle = sum(row[3] + (row[4] if len(row) > 4 else 0) for row in ticks)
    steal = sum(row[7] for row in ticks if len(row) > 7)
    return (total - idle - steal) / _TICKS_PER_S, steal / _TICKS_PER_S, total / _TICKS_PER_S


def _load_1min(sysfs: Sysfs) -> float | None:
    match = re.match(r"\d{1,9}\.\d{1,9}", sysfs.text("proc/loadavg") or "")
    return float(match[0]) if match else None


def _pressure(sysfs: Sysfs, resource: str) -> tuple[float | None, float | None]:
    """(per cent over 10 s, stalled seconds since boot) of the "some" line."""
    match = re.search(
        r"some avg10=(\d+\.\d+).*?total=(\d{1,18})", sysfs.text(f"proc/pressure/{resource}") or ""
    )
    return (float(match[1]), int(match[2]) / 1e6) if match else (None, None)


def _is_on_battery(sysfs: Sysfs) -> bool | None:
    """On battery when a battery discharges and no mains is plugged in; None where there is no battery."""
    has_battery, mains_online, discharging = False, False, False
    for name in sysfs.names(_SUPPLY_DIR):
        kind = sysfs.text(f"{_SUPPLY_DIR}/{name}/type")
        if kind in ("Mains", "USB"):
            mains_online = mains_online or sysfs.integer(f"{_SUPPLY_DIR}/{name}/online") == 1
        elif kind == "Battery" and sysfs.text(f"{_SUPPLY_DIR}/{name}/scope") != "Device":
            has_battery = True
            discharging = discharging or sysfs.text(f"{_SUPPLY_DIR}/{name}/status") == "Discharging"
    return (discharging and not mains_online) if has_battery else None


def _swap_used_bytes(sysfs: Sysfs) -> int | None:
    found = dict(
        re.findall(r"^(SwapTotal|SwapFree):\s*(\d{1,15}) kB", sysfs.text("proc/meminfo") or "", re.MULTILINE)
    )
    return max(0, int(found["SwapTotal"]) - int(found["SwapFree"])) * 1024 if len(found) == 2 else None
