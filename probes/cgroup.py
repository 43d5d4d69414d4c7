"""Reads the CPU and memory limits that bind this process over its whole cgroup path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from probes.cgroup_paths import CgroupPaths, find_cgroup_paths
from probes.cpulist import parse_int
from probes.record import Record
from probes.sysfs import Sysfs

__all__ = ["Cgroup", "Throttling", "read_cgroup", "read_throttling"]

_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True)
class Cgroup:
    """The tightest limits over the path; None is "no limit is set or none can be seen".

    `cpu_quota` is in CPUs (7.65), `memory_room_bytes` the smallest "limit minus current use" (file cache that
    can be dropped is not counted as use). `cpuset_cpus` and `cpuset_mems` are None when there is no cpuset.
    """

    cpuset_cpus: tuple[int, ...] | None = None
    cpuset_mems: tuple[int, ...] | None = None
    cpu_quota: float | None = None
    memory_bytes: int | None = None
    memory_room_bytes: int | None = None

    def to_json(self) -> dict[str, object]:
        """The limits as the probe's JSON shows them."""
        return {
            "cpuset_cpus": None if self.cpuset_cpus is None else list(self.cpuset_cpus),
            "cpuset_mems": None if self.cpuset_mems is None else list(self.cpuset_mems),
            "cpu_quota": self.cpu_quota,
            "memory_bytes": self.memory_bytes,
            "memory_room_bytes": self.memory_room_bytes,
        }

    @classmethod
    def from_record(cls, record: Record) -> Cgroup:
        """The limits of such a JSON object."""
        return cls(
            cpuset_cpus=record.integers("cpuset_cpus") if record.has("cpuset_cpus") else None,
            cpuset_mems=record.integers("cpuset_mems") if record.has("cpuset_mems") else None,
            cpu_quota=record.number("cpu_quota"),
            memory_bytes=record.integer("memory_bytes"),
            memory_room_bytes=record.integer("memory_room_bytes"),
        )


@dataclass(frozen=True)
class Throttling:
    """How often and how long the CPU quota stopped the group, summed over the path."""

    periods: int = 0
    throttled_periods: int = 0
    throttled_s: float = 0.0


def read_cgroup(sysfs: Sysfs) -> Cgroup:
    """The limits of this process's cgroups; all None where no hierarchy is mounted."""
    paths = find_cgroup_paths(sysfs)
    limits = list(_memory_limits(sysfs, paths))
    quotas = [quota for quota in _quotas(sysfs, paths) if quota is not None]
    return Cgroup(
        cpuset_cpus=_cpuset(sysfs, paths, "cpus"),
        cpuset_mems=_cpuset(sysfs, paths, "mems"),
        cpu_quota=min(quotas, default=None),
        memory_bytes=min((limit for limit, _ in limits), default=None),
        memory_room_bytes=min((max(0, limit - used) for limit, used in limits), default=None),
    )


def read_throttling(sysfs: Sysfs) -> Throttling | None:
    """The counters of `cpu.stat` over the path; None where there are none."""
    paths = find_cgroup_paths(sysfs)
    rows = [_stat(sysfs, f"{folder}/cpu.stat") for folder in (*paths.unified, *paths.cpu)]
    rows = [row for row in rows if "nr_throttled" in row]
    if not rows:
        return None
    return Throttling(
        periods=max(row.get("nr_periods", 0) for row in rows),
        throttled_periods=sum(row["nr_throttled"] for row in rows),
        throttled_s=sum(
            row.get("throttled_usec", 0) / 1e6 + row.get("throttled_time", 0) / 1e9 for row in rows
        ),
    )


def _quotas(sysfs: Sysfs, paths: CgroupPaths) -> Iterable[float | None]:
    for folder in paths.unified:
        words = (sysfs.text(f"{folder}/cpu.max") or "max").split()
        yield _quota(words[0], words[1] if len(words) > 1 else "100000") if words else None
    for folder in paths.cpu:
        yield _quota(sysfs.text(f"{folder}/cpu.cfs_quota_us"), sysfs.text(f"{folder}/cpu.cfs_period_us"))


def _quota(quota_us: str | None, period_us: str | None) -> float | None:
    quota, period = parse_int(quota_us), parse_int(period_us)
    if quota is None or period is None or quota <= 0 or period <= 0:
        return None
    return quota / period


def _memory_limits(sysfs: Sysfs, paths: CgroupPaths) -> Iterable[tuple[int, int]]:
    """(limit, use) of every level that has a limit, both in bytes."""
    for folder in paths.unified:
        used = sysfs.integer(f"{folder}/memory.current") or 0
        for name in ("memory.max", "memory.high"):
            limit = sysfs.integer(f"{folder}/{name}")
            if limit is not None and 0 <= limit < _UNLIMITED_BYTES:
                yield limit, _without_cache(sysfs, folder, used, "inactive_file")
    for depth, folder in enumerate(paths.memory):
        used = sysfs.integer(f"{folder}/memory.usage_in_bytes") or 0
        stat = _stat(sysfs, f"{folder}/memory.stat")
        limits = [sysfs.integer(f"{folder}/memory.limit_in_bytes")]
        if depth == 0:
            # Ancestors may lie outside of what this namespace shows; the kernel adds them up here.
            limits.append(stat.get("hierarchical_memory_limit"))
        for limit in limits:
            if limit is not None and 0 <= limit < _UNLIMITED_BYTES:
                yield limit, max(0, used - stat.get("total_inactive_file", 0))


def _without_cache(sysfs: Sysfs, folder: str, used: int, key: str) -> int:
    return max(0, used - _stat(sysfs, f"{folder}/memory.stat").get(key, 0))


def _cpuset(sysfs: Sysfs, paths: CgroupPaths, what: str) -> tuple[int, ...] | None:
    """The effective set of the nearest level that has one: v1's cpuset if mounted, else v2's."""
    # The legacy cpuset file system, and v1 mounted with "noprefix", name the files without a prefix.
    v1_names = (f"cpuset.effective_{what}", f"cpuset.{what}", f"effective_{what}", what)
    v2_names = (f"cpuset.{what}.effective", f"cpuset.{what}")
    return _nearest(sysfs, paths.cpuset, v1_names) or _nearest(sysfs, paths.unified, v2_names)


def _nearest(sysfs: Sysfs, folders: Sequence[str], names: Sequence[str]) -> tuple[int, ...] | None:
    for folder in folders:
        for name in names:
            found = sysfs.cpu_list(f"{folder}/{name}")
            if found:
                return found
    return None


def _stat(sysfs: Sysfs, path: str) -> dict[str, int]:
    rows = (line.split() for line in sysfs.lines(path))
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isascii() and row[1].isdecimal()}
