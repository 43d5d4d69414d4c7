"""Counters that the kernel keeps about this process and its CPUs, read before and after a round."""

from __future__ import annotations

import hashlib
import os
import resource
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from probes.cgroup_paths import find_cgroup_paths
from probes.sysfs import Sysfs

_LIVE = Sysfs()
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

BUSY_SHARE = 0.1
"""A thread that ran for more than this share of a round takes part in the computing."""

_CANARY_BLOCK = b"\x02" * (1 << 16)
_CANARY_FIELD = b"\x02" * (8 << 20)


@dataclass(frozen=True)
class Snapshot:
    """Counters at one moment; `ran_ns` and `run_delay_ns` by thread, `totals` all others by name."""

    totals: Mapping[str, int]
    run_delay_ns: Mapping[int, int]
    ran_ns: Mapping[int, int]


def snapshot() -> Snapshot:
    """Read everything that is readable here; what is not is absent."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    totals = {
        "wall_ns": time.monotonic_ns(),
        "cpu_ns": time.process_time_ns(),
        "voluntary_switches": usage.ru_nvcsw,
        "involuntary_switches": usage.ru_nivcsw,
        "minor_faults": usage.ru_minflt,
        "major_faults": usage.ru_majflt,
        **_cpu_times(),
        **_pressure(),
        **_throttling(),
    }
    times = _thread_times()
    return Snapshot(
        totals,
        run_delay_ns={thread: delay for thread, (_, delay) in times.items()},
        ran_ns={thread: ran for thread, (ran, _) in times.items()},
    )


def deltas(before: Snapshot, after: Snapshot) -> dict[str, float]:
    """What happened in between: `max_run_delay_ns` is the worst thread's; `cpus`, how many may be used, is
    no delta."""
    changed = {
        name: float(value - before.totals[name])
        for name, value in after.totals.items()
        if name in before.totals
    }
    delays = [value - before.run_delay_ns.get(thread, 0) for thread, value in after.run_delay_ns.items()]
    if delays:
        changed["max_run_delay_ns"] = float(max(delays))
    ran = (value - before.ran_ns.get(thread, 0) for thread, value in after.ran_ns.items())
    changed["busy_threads"] = float(sum(ns > BUSY_SHARE * changed["wall_ns"] for ns in ran))
    changed["cpus"] = float(len(os.sched_getaffinity(0)))
    return changed


def canary() -> dict[str, float]:
    """Nanoseconds of a fixed piece of hashing and of one pass over memory: what a guest can't see otherwise.

    Each is the better of two, so that one interrupt does not look like a slower machine.
    """
    return {
        "canary_hash_ns": min(_timed_hash() for _ in range(2)),
        "canary_memory_ns": min(_timed_pass() for _ in range(2)),
    }


def memory() -> dict[str, float]:
    """Resident memory of this process in MiB: the peak since `reset_peak`, and its parts right now.

    Anonymous and file-backed are from smaps_rollup, which is exact, where it can be read. A mapped model
    counts as file-backed as far as its pages were touched.
    """
    status = _fields("proc/self/status")
    rollup = _fields("proc/self/smaps_rollup")
    anonymous = rollup.get("Anonymous", status.get("RssAnon", 0))
    resident = rollup.get("Rss", status.get("VmRSS", 0))
    kib = {
        "peak_rss_mib": max(status.get("VmHWM", 0), resident),
        "peak_anon_mib": anonymous,
        "peak_file_mib": resident - anonymous,
        "swap_mib": status.get("VmSwap", 0),
        "huge_pages_mib": rollup.get("AnonHugePages", 0),
    }
    return {name: value / 1024 for name, value in kib.items()}


def reset_peak() -> bool:
    """Let the peak begin anew at what is resident now; False where the kernel does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def busy_ns() -> int:
    """How long the CPUs that this process may use have been busy, all together."""
    return _cpu_times()["busy_ns"]


def thread_affinities() -> list[list[int]]:
    """The distinct CPU sets that the threads of this process are bound to."""
    found = set()
    for task in _tasks():
        # Engines end threads whenever they like, also between these two looks.
        with suppress(ProcessLookupError):
            found.add(tuple(sorted(os.sched_getaffinity(task))))
    return [list(cpus) for cpus in sorted(found)]


def memory_policies() -> list[str]:
    """The distinct NUMA policies of this process's threads as numa_maps names them ("default", "bind:1");
    none where the kernel tells none."""
    found: set[str] = set()
    for task in _tasks():
        # The first mapping is the program itself, which has its thread's policy; more would take longer.
        with suppress(OSError), open(f"/proc/self/task/{task}/numa_maps", "rb", buffering=0) as maps:
            found.update(word.decode() for word in maps.read(100).split()[1:2])
    return sorted(found)


def _cpu_times() -> dict[str, int]:
    """Busy and stolen time of the CPUs that this process may use."""
    used = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    busy = stolen = 0
    for line in _read("proc/stat").splitlines():
        name, *fields = line.split()
        if name in used:
            user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[:8])
            busy += user + nice + system + irq + softirq
            stolen += steal
    return {"busy_ns": busy * _TICK_NS, "steal_ns": stolen * _TICK_NS}


def _thread_times() -> dict[int, tuple[int, int]]:
    """Nanoseconds that each thread ran, and that it was ready to run and did not."""
    times = {}
    for task in _tasks():
        fields = _read(f"proc/self/task/{task}/schedstat").split()
        if len(fields) == 3:
            times[task] = (int(fields[0]), int(fields[1]))
    return times


def _tasks() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


def _pressure() -> dict[str, int]:
    """Microseconds that anything on this machine waited for a resource, as PSI totals them."""
    totals = {}
    for kind in ("cpu", "io", "memory"):
        line = _read(f"proc/pressure/{kind}").partition("\n")[0]
        if "total=" in line:
            totals[f"pressure_{kind}_ns"] = int(line.rpartition("total=")[2]) * 1000
    return totals


def _throttling() -> dict[str, int]:
    """Periods in which a quota of our control group or of one above it stopped us (versions 1 and 2)."""
    texts = [text for folder in _quota_folders() if "nr_throttled" in (text := _read(f"{folder}/cpu.stat"))]
    if not texts:
        return {}
    levels = [{name: int(value) for name, value in map(str.split, text.splitlines())} for text in texts]
    return {
        "throttled_periods": sum(level["nr_throttled"] for level in levels),
        "throttled_ns": sum(
            level.get("throttled_time", 0) + 1000 * level.get("throttled_usec", 0) for level in levels
        ),
    }


@cache
def _quota_folders() -> tuple[str, ...]:
    paths = find_cgroup_paths(_LIVE)
    return (*paths.unified, *paths.cpu)


def _timed_hash() -> float:
    started = time.perf_counter_ns()
    digest = hashlib.sha256()
    for _ in range(8):
        digest.update(_CANARY_BLOCK)
    return float(time.perf_counter_ns() - started)


def _timed_pass() -> float:
    started = time.perf_counter_ns()
    _CANARY_FIELD.find(b"\x01")
    return float(time.perf_counter_ns() - started)


def _fields(path: str) -> dict[str, int]:
    """`Name:  123 kB` lines as numbers."""
    pairs = (line.partition(":") for line in _read(path).splitlines())
    return {name: int(value.split()[0]) for name, _, value in pairs if value.strip().endswith("kB")}


def _read(path: str) -> str:
    return _LIVE.text(path) or ""
