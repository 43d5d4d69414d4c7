"""Turns conditions into advice: what disturbs a measurement, how much, which command mends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probes.conditions import Conditions
from probes.cpulist import format_cpu_list
from probes.effective import Effective
from probes.record import Record

__all__ = ["Advice", "advise"]

_SAVING_GOVERNORS = {"powersave", "ondemand", "conservative"}
_MIB = 1 << 20


@dataclass(frozen=True)
class Advice:
    """One remark.

    `severity` is info, warning or critical, `value` the number behind it, `fix` the act that mends.
    """

    id: str
    severity: str
    message: str
    fix: str
    value: float | None = None

    def to_json(self) -> dict[str, object]:
        """The advice as the probe's JSON shows it."""
        return {
            "id": self.id,
            "severity": self.severity,
            "message": self.message,
            "fix": self.fix,
            "value": self.value,
        }

    @classmethod
    def from_record(cls, record: Record) -> Advice:
        """The advice of such a JSON object."""
        return cls(
            id=record.text("id") or "unknown",
            severity=record.text("severity") or "info",
            message=record.text("message") or "",
            fix=record.text("fix") or "",
            value=record.number("value"),
        )


def advise(now: Conditions, effective: Effective) -> tuple[Advice, ...]:
    """What stands against measuring on this machine now; () when nothing does."""
    return (*_frequency(now), *_neighbours(now, effective), *_memory(now), *_quota(now, effective))


def _frequency(now: Conditions) -> Iterator[Advice]:
    saving = sorted(_SAVING_GOVERNORS.intersection(now.governors))
    # Active intel_pstate and amd_pstate call their normal governor "powersave": the preference decides.
    is_active_pstate = bool(now.energy_preferences) and saving == ["powersave"]
    if is_active_pstate:
        lazy = [name for name in now.energy_preferences if name in ("power", "balance_power")]
        if lazy:
            yield Advice(
                "energy_preference",
                "warning",
                f"the energy preference is {', '.join(lazy)}: cores clock up late",
                "sudo cpupower set --epp performance  (or: powerprofilesctl set performance)",
            )
    elif saving:
        yield Advice(
            "governor",
            "warning",
            f"the frequency governor is {', '.join(saving)}: cores clock up late or never",
            "sudo cpupower frequency-set -g performance",
        )
    if now.is_turbo_on is False:
        yield Advice(
            "turbo_off",
            "info",
            "turbo is off: speed is steady but below what the machine can do",
            "echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo  "
            "(other drivers: echo 1 | sudo tee /sys/devices/system/cpu/cpufreq/boost)",
        )
    if (
        now.frequency_limit_mhz
        and now.frequency_max_mhz
        and now.frequency_limit_mhz < 0.95 * now.frequency_max_mhz
    ):
        yield Advice(
            "frequency_capped",
            "warning",
            f"cores are capped at {now.frequency_limit_mhz:.0f} of {now.frequency_max_mhz:.0f} MHz",
            f"sudo cpupower frequency-set -u {now.frequency_max_mhz:.0f}MHz",
            now.frequency_limit_mhz,
        )
    if now.thermal_throttle_count:
        yield Advice(
            "thermal_throttle",
            "info",
            f"cores were slowed by heat {now.thermal_throttle_count} times since boot",
            "improve the cooling, or lower the number of threads",
            float(now.thermal_throttle_count),
        )
    if now.is_on_battery:
        yield Advice(
            "battery", "warning", "the machine runs on battery: the firmware lowers speed", "plug it in"
        )


def _neighbours(now: Conditions, effective: Effective) -> Iterator[Advice]:
    if now.steal_s and now.total_s and now.steal_s > 0.02 * now.total_s:
        share = 100 * now.steal_s / now.total_s
        yield Advice(
            "steal",
            "warning",
            f"the hypervisor gave {share:.1f} % of this machine's CPU time to others since boot",
            "use a machine with dedicated cores, or give the search a larger budget",
            round(share, 2),
        )
    if now.load_1min is not None and now.load_1min > 0.25 * effective.cpu_count:
        busy = now.load_1min > 0.75 * effective.cpu_count
        yield Advice(
            "load",
            "warning" if busy else "info",
            f"other work keeps {now.load_1min:.1f} of {effective.cpu_count} CPUs busy (last minute's load)",
            "see with `top -o %CPU` what runs, and stop it or wait for a quiet time",
            now.load_1min,
        )
    if now.cpu_pressure is not None and now.cpu_pressure > 10:
        yield Advice(
            "cpu_pressure",
            "warning",
            f"tasks waited for a CPU during {now.cpu_pressure:.0f} % of the last 10 s",
            "see with `top -o %CPU` what runs, and stop it or wait",
            now.cpu_pressure,
        )


def _memory(now: Conditions) -> Iterator[Advice]:
    if now.swap_used_bytes and now.swap_used_bytes > 64 * _MIB:
        yield Advice(
            "swap",
            "warning",
            f"{now.swap_used_bytes // _MIB} MiB are swapped out: a model's pages may follow",
            "free memory, then: sudo swapoff -a && sudo swapon -a",
            float(now.swap_used_bytes),
        )
    if now.memory_pressure is not None and now.memory_pressure > 1:
        yield Advice(
            "memory_pressure",
            "warning",
            f"tasks waited for memory during {now.memory_pressure:.0f} % of the last 10 s",
            "close what holds memory (`ps aux --sort -rss | head`), or choose a smaller variant",
            now.memory_pressure,
        )


def _quota(now: Conditions, effective: Effective) -> Iterator[Advice]:
    quota = effective.cpu_quota
    if effective.limited_by == "quota" and quota is not None:
        severity = "info" if quota >= 1 else "warning"
        yield Advice(
            "cpu_quota",
            severity,
            f"a CPU quota of {quota:g} CPUs binds on {len(effective.cpus)} visible CPUs: "
            f"more than {effective.cpu_count} busy threads are throttled",
            f"pin instead of limiting time: cpuset (docker run --cpuset-cpus="
            f"{format_cpu_list(effective.cpus[: effective.cpu_count])})",
            quota,
        )
    if now.throttling is not None and now.throttling.throttled_periods > 0:
        periods = now.throttling.throttled_periods
        share = 100 * periods / max(periods, now.throttling.periods)
        yield Advice(
            "cgroup_throttled",
            "warning" if share > 1 else "info",
            f"the CPU quota stopped this group in {periods} periods ({share:.0f} %) so far",
            "run fewer threads than the quota has CPUs, or raise it (docker update --cpus=N)",
            float(periods),
        )
