"""Reads the caches with their size, sharing, number of instances."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from probes.cpuinfo import CpuInfo
from probes.cpulist import parse_size_bytes
from probes.record import Record
from probes.sysfs import Sysfs
from probes.topology import CPU_DIR

__all__ = ["Cache", "CacheInstance", "read_cache_instances", "summarize_caches", "total_bytes"]

_TYPES = {"data": "data", "instruction": "instruction", "unified": "unified"}


@dataclass(frozen=True)
class CacheInstance:
    """One cache of the machine with the online CPUs that share it; `cpus` is () where sharing is not told."""

    level: int
    type: str
    size_bytes: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Cache:
    """All caches of one level, type and size. `type` is data, instruction or unified.

    `instances` is None where the kernel doesn't tell the sharing; `cpus_per_instance` is the largest group.
    """

    level: int
    type: str
    size_bytes: int
    instances: int | None = None
    cpus_per_instance: int | None = None

    def to_json(self) -> dict[str, object]:
        """The cache as the probe's JSON shows it."""
        return {
            "level": self.level,
            "type": self.type,
            "size_bytes": self.size_bytes,
            "instances": self.instances,
            "cpus_per_instance": self.cpus_per_instance,
        }

    @classmethod
    def from_record(cls, record: Record) -> Cache:
        """The cache of such a JSON object."""
        return cls(
            level=record.integer("level") or 0,
            type=record.text("type") or "unified",
            size_bytes=record.integer("size_bytes") or 0,
            instances=record.integer("instances"),
            cpus_per_instance=record.integer("cpus_per_instance"),
        )


def read_cache_instances(
    sysfs: Sysfs, cpuinfo: CpuInfo, online: Sequence[int], note: Callable[[str], None]
) -> tuple[CacheInstance, ...]:
    """Every cache that an online CPU has and whose size is told."""
    scan = _Scan(sysfs, frozenset(online))
    for cpu in online:
        scan.visit(cpu)
    found = scan.found or _sparc_instances(sysfs, online)
    if scan.without and scan.found:
        note(f"caches unknown for {scan.without} of {len(online)} CPUs")
    if scan.unsized and not found:
        note("cache sizes unknown: the kernel lists caches without a size")
    elif not found and online:
        note("caches unknown: the kernel lists none")
    return (*found, *_s390_shared(cpuinfo, {(cache.level, cache.type) for cache in found}))


def summarize_caches(instances: Iterable[CacheInstance]) -> tuple[Cache, ...]:
    """One entry a distinct level, type and size, in that order."""
    groups: dict[tuple[int, str, int], list[CacheInstance]] = {}
    for cache in instances:
        groups.setdefault((cache.level, cache.type, cache.size_bytes), []).append(cache)
    summary = []
    for (level, kind, size), members in sorted(groups.items()):
        told = all(cache.cpus for cache in members)
        widest = max(len(cache.cpus) for cache in members)
        summary.append(Cache(level, kind, size, len(members) if told else None, widest if told else None))
    return tuple(summary)


def total_bytes(caches: Iterable[Cache], level: int) -> int:
    """All data or unified cache of one level together; an unknown number of instances counts as one."""
    relevant = (cache for cache in caches if cache.level == level and cache.type != "instruction")
    return sum(cache.size_bytes * (cache.instances or 1) for cache in relevant)


class _Scan:
    """Visits CPUs one by one, reading each shared cache once only."""

    def __init__(self, sysfs: Sysfs, online: frozenset[int]) -> None:
        self.found: list[CacheInstance] = []
        self.without = 0
        self.unsized = False
        self._sysfs = sysfs
        self._online = online
        self._covered: set[tuple[int, int]] = set()

    def visit(self, cpu: int) -> None:
        base = f"{CPU_DIR}/cpu{cpu}/cache"
        indexes = self._sysfs.numbered(base, "index")
        self.without += not indexes
        for index in indexes:
            if (index, cpu) not in self._covered:
                self._read(cpu, index, f"{base}/index{index}")

    def _read(self, cpu: int, index: int, base: str) -> None:
        level = self._sysfs.integer(f"{base}/level")
        kind = _TYPES.get((self._sysfs.text(f"{base}/type") or "").lower())
        size = self._sysfs.size_bytes(f"{base}/size")
        if level is None or not 1 <= level <= 9 or kind is None:
            return
        if not size:
            self.unsized = True
            return
        listed = self._sysfs.cpu_set(f"{base}/shared_cpu_list", f"{base}/shared_cpu_map")
        if listed is None:
            self._add_untold(level, kind, size)
            return
        cpus = tuple(c for c in listed if c in self._online and (index, c) not in self._covered)
        cpus = cpus if cpu in cpus else (cpu,)
        self._covered.update((index, member) for member in cpus)
        self.found.append(CacheInstance(level, kind, size, cpus))

    def _add_untold(self, level: int, kind: str, size: int) -> None:
        cache = CacheInstance(level, kind, size, ())
        if cache not in self.found:
            self.found.append(cache)


def _s390_shared(cpuinfo: CpuInfo, known: set[tuple[int, str]]) -> list[CacheInstance]:
    """The caches that only cpuinfo tells: `cache3 : level=3 type=Unified scope=Shared size=49152K ...`."""
    found = []
    for key, value in cpuinfo.common.items():
        if re.fullmatch(r"cache\d{1,2}", key):
            facts = dict(part.partition("=")[::2] for part in value.split())
            kind = _TYPES.get(facts.get("type", "").lower())
            size = parse_size_bytes(facts.get("size"))
            level = facts.get("level", "")
            if kind and size and level in "123456789" and level and (int(level), kind) not in known:
                found.append(CacheInstance(int(level), kind, size, ()))
    return found


def _sparc_instances(sysfs: Sysfs, online: Sequence[int]) -> list[CacheInstance]:
    """SPARC kernels put plain sizes into the CPU folder and leave sharing open."""
    names = (
        ("l1_dcache_size", 1, "data"),
        ("l1_icache_size", 1, "instruction"),
        ("l2_cache_size", 2, "unified"),
    )
    found: list[CacheInstance] = []
    for cpu in online[:1]:
        for name, level, kind in names:
            size = sysfs.integer(f"{CPU_DIR}/cpu{cpu}/{name}")
            if size and size > 0:
                found.append(CacheInstance(level, kind, size, ()))
    return found
