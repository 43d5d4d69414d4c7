"""Works out what this process may really use: CPUs, CPU time, memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from probes.cgroup import Cgroup
from probes.cpulist import parse_cpu_list
from probes.memory import Memory
from probes.record import Record
from probes.sysfs import Sysfs
from probes.topology import Topology

__all__ = ["Effective", "read_effective"]


@dataclass(frozen=True)
class Effective:
    """What is left after affinity mask, cpuset and quota.

    `cpus` are the CPU ids that a thread may run on (() only where no source tells any), `cpu_count` how many
    threads run at once without being throttled: min(len(cpus), floor(quota)), at least 1. `limited_by` names
    what binds: none, affinity, cpuset, quota, unknown. `memory_bytes` is what may still be allocated.
    """

    cpus: tuple[int, ...] = ()
    cpu_count: int = 1
    cpu_quota: float | None = None
    limited_by: str = "none"
    memory_bytes: int | None = None

    @property
    def cpu_count_ceiling(self) -> int:
        """The bound of a search over thread counts: a fractional quota is rounded up."""
        if self.cpu_quota is None:
            return self.cpu_count
        return max(self.cpu_count, min(len(self.cpus) or self.cpu_count, math.ceil(self.cpu_quota)))

    def to_json(self) -> dict[str, object]:
        """The limits as the probe's JSON shows them."""
        return {
            "cpus": list(self.cpus),
            "cpu_count": self.cpu_count,
            "cpu_quota": self.cpu_quota,
            "limited_by": self.limited_by,
            "memory_bytes": self.memory_bytes,
        }

    @classmethod
    def from_record(cls, record: Record) -> Effective:
        """The limits of such a JSON object."""
        cpus = record.integers("cpus")
        return cls(
            cpus=cpus,
            cpu_count=record.integer("cpu_count", low=1) or max(1, len(cpus)),
            cpu_quota=record.number("cpu_quota"),
            limited_by=record.text("limited_by") or "unknown",
            memory_bytes=record.integer("memory_bytes"),
        )


def read_effective(
    sysfs: Sysfs, topology: Topology, cgroup: Cgroup, memory: Memory, note: Callable[[str], None]
) -> Effective:
    """The effective limits; a mask that leaves no online CPU is told to `note` and ignored."""
    affinity = _affinity(sysfs)
    cpus, limited_by = topology.online, "none"
    for name, mask in (("affinity", affinity), ("cpuset", cgroup.cpuset_cpus)):
        if not mask:
            continue
        left = tuple(cpu for cpu in cpus if cpu in frozenset(mask)) if cpus else mask
        if not left:
            note(f"the {name} mask holds no online CPU; ignored")
        elif left != cpus:
            cpus, limited_by = left, name if topology.online else "unknown"
    if cgroup.cpuset_cpus and limited_by == "affinity" and set(cpus) == set(cgroup.cpuset_cpus):
        limited_by = "cpuset"  # a cpuset narrows the affinity mask of all that runs in it
    count = len(cpus) or topology.logical_cpus or 1
    if cgroup.cpu_quota is not None and cpus and cgroup.cpu_quota < len(cpus):
        count, limited_by = max(1, math.floor(cgroup.cpu_quota)), "quota"
    elif not cpus:
        limited_by = "unknown"
    return Effective(cpus, count, cgroup.cpu_quota, limited_by, _memory_bytes(cgroup, memory))


def _affinity(sysfs: Sysfs) -> tuple[int, ...]:
    for line in sysfs.lines("proc/self/status"):
        if line.startswith("Cpus_allowed_list:"):
            return parse_cpu_list(line.partition(":")[2])
    if sysfs.is_live and hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return ()


def _memory_bytes(cgroup: Cgroup, memory: Memory) -> int | None:
    bounds = [bound for bound in (memory.available_bytes, cgroup.memory_room_bytes) if bound is not None]
    return min(bounds, default=None)
