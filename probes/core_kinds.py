"""Sorts the cores of a machine into kinds, the fast ones first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from probes.arm_parts import is_little_core
from probes.caches import CacheInstance
from probes.cpuinfo import CpuInfo
from probes.identity import arm_core_names
from probes.record import Record
from probes.sysfs import Sysfs
from probes.topology import CPU_DIR, Topology

__all__ = ["SPEED_GAP", "CoreKind", "read_core_kinds"]

SPEED_GAP = 0.8
"""Cores belong to different kinds when the slower reach at most this share of the next faster one's speed.

Favoured cores differ by some percent, compact and efficiency cores by 25 % and more.
"""

_PMU_KINDS = (
    ("cpu_core", "performance"),
    ("cpu_atom", "efficiency"),
    ("cpu_lowpower", "low-power-efficiency"),
)
_RANKS = {"performance": 0, "uniform": 0, "efficiency": 1, "low-power-efficiency": 2}
Speeds = dict[int, float]


@dataclass(frozen=True)
class CoreKind:
    """One kind of core with the online CPUs that are of it; `max_mhz` is the fastest's, None if not told."""

    kind: str
    cpus: tuple[int, ...]
    physical_cores: int
    max_mhz: float | None = None

    def to_json(self) -> dict[str, object]:
        """The kind as the probe's JSON shows it."""
        return {
            "kind": self.kind,
            "cpus": list(self.cpus),
            "physical_cores": self.physical_cores,
            "max_mhz": self.max_mhz,
        }

    @classmethod
    def from_record(cls, record: Record) -> CoreKind:
        """The kind of such a JSON object."""
        return cls(
            kind=record.text("kind") or "uniform",
            cpus=record.integers("cpus"),
            physical_cores=record.integer("physical_cores") or 0,
            max_mhz=record.number("max_mhz"),
        )


def read_core_kinds(
    sysfs: Sysfs, cpuinfo: CpuInfo, topology: Topology, instances: Iterable[CacheInstance]
) -> tuple[CoreKind, ...]:
    """The kinds of the online CPUs, fast ones first; a machine of equal cores has one, an unknown one none.

    First by what the kernel or the core's part number says, else by the first-level caches; then each group
    is split where `cpu_capacity` or the maximum frequency falls to `SPEED_GAP` or less.
    """
    if not topology.online:
        return ()
    speeds = _Speeds(sysfs, topology)
    groups = _by_pmu(sysfs, topology) or _by_part(cpuinfo, topology) or _by_first_caches(topology, instances)
    kinds = []
    for name, cpus in groups:
        capacities = speeds.capacities(cpus)
        for index, part in enumerate(_split(cpus, capacities or speeds.max_mhz(cpus))):
            kinds.append(_kind(_split_name(name, index), part, topology, speeds))
    if len(groups) > 1 or len(kinds) > 1:
        order = speeds.capacities(topology.online)
        kinds.sort(key=lambda kind: _order(kind, order))
        kinds = [_named(kind, rank) for rank, kind in enumerate(kinds)]
    return tuple(kinds)


class _Speeds:
    """Reads the speed figures of CPUs, one thread a core."""

    def __init__(self, sysfs: Sysfs, topology: Topology) -> None:
        self._sysfs = sysfs
        self._core_of = {cpu: core[0] for core in topology.cores for cpu in core}
        self._mhz: dict[int, float | None] = {}
        self._capacity: dict[int, int | None] = {}

    def max_mhz(self, cpus: Sequence[int]) -> Speeds:
        """The maximum frequency of those CPUs that tell it."""
        told = {cpu: self._max_mhz_of(self._core_of.get(cpu, cpu)) for cpu in cpus}
        return {cpu: mhz for cpu, mhz in told.items() if mhz is not None}

    def capacities(self, cpus: Sequence[int]) -> Speeds:
        """The scheduler's capacity, 1024 being the fastest; {} unless all tell it and they differ."""
        if self._capacity_of(self._core_of.get(cpus[0], cpus[0])) is None:
            return {}
        told = {cpu: self._capacity_of(self._core_of.get(cpu, cpu)) for cpu in cpus}
        known = {cpu: float(capacity) for cpu, capacity in told.items() if capacity is not None}
        return known if len(known) == len(cpus) and len(set(known.values())) > 1 else {}

    def _max_mhz_of(self, cpu: int) -> float | None:
        if cpu not in self._mhz:
            khz = self._sysfs.integer(f"{CPU_DIR}/cpu{cpu}/cpufreq/cpuinfo_max_freq")
            self._mhz[cpu] = khz / 1000 if khz is not None and khz > 0 else None
        return self._mhz[cpu]

    def _capacity_of(self, cpu: int) -> int | None:
        if cpu not in self._capacity:
            capacity = self._sysfs.integer(f"{CPU_DIR}/cpu{cpu}/cpu_capacity")
            self._capacity[cpu] = capacity if capacity is not None and capacity > 0 else None
        return self._capacity[cpu]


Groups = list[tuple[str, tuple[int, ...]]]


def _by_pmu(sysfs: Sysfs, topology: Topology) -> Groups:
    """Intel hybrid kernels have one performance-counter device for each kind."""
    groups: Groups = []
    left = set(topology.online)
    for device, name in _PMU_KINDS:
        cpus = tuple(cpu for cpu in sysfs.cpu_list(f"sys/devices/{device}/cpus") or () if cpu in left)
        if cpus:
            groups.append((name, cpus))
            left.difference_update(cpus)
    if groups and left:
        groups.append(("uniform", tuple(sorted(left))))
    return groups


def _by_part(cpuinfo: CpuInfo, topology: Topology) -> Groups:
    names = arm_core_names(cpuinfo)
    groups: dict[str, list[int]] = {}
    for cpu in topology.online:
        if cpu in names:
            groups.setdefault(names[cpu], []).append(cpu)
    if len(groups) < 2:
        return []
    unnamed = tuple(cpu for cpu in topology.online if cpu not in names)
    return [
        *((name, tuple(cpus)) for name, cpus in groups.items()),
        *([("uniform", unnamed)] if unnamed else []),
    ]


def _by_first_caches(topology: Topology, instances: Iterable[CacheInstance]) -> Groups:
    """Different first-level caches betray different designs; CPUs without the files join the largest."""
    sizes: dict[int, dict[str, int]] = {}
    for cache in instances:
        if cache.level == 1:
            for cpu in cache.cpus:
                sizes.setdefault(cpu, {})[cache.type] = cache.size_bytes
    groups: dict[tuple[int, int], list[int]] = {}
    for cpu in topology.online:
        own = sizes.get(cpu, {})
        if "data" in own and "instruction" in own:
            groups.setdefault((own["data"], own["instruction"]), []).append(cpu)
    if len(groups) < 2:
        return [("uniform", topology.online)]
    rest = [cpu for cpu in topology.online if not any(cpu in cpus for cpus in groups.values())]
    max(groups.values(), key=len).extend(rest)
    return [("uniform", tuple(sorted(cpus))) for cpus in groups.values()]


def _split(cpus: tuple[int, ...], speeds: Speeds) -> list[tuple[int, ...]]:
    """The CPUs in runs of similar speed, fastest first; those without a figure go with the fastest."""
    steps = sorted(set(speeds.values()), reverse=True)
    bounds = [low for high, low in pairwise(steps) if low <= SPEED_GAP * high]
    parts: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    for cpu in cpus:
        parts[sum(1 for bound in bounds if speeds.get(cpu, steps[0] if steps else 0.0) <= bound)].append(cpu)
    return [tuple(part) for part in parts if part]


def _split_name(name: str, index: int) -> str:
    if index == 0:
        return name
    return "low-power-efficiency" if name == "efficiency" else f"{name}-{index + 1}"


def _kind(name: str, cpus: tuple[int, ...], topology: Topology, speeds: _Speeds) -> CoreKind:
    members = frozenset(cpus)
    cores = sum(1 for core in topology.cores if members.intersection(core))
    mhz = speeds.max_mhz(cpus)
    return CoreKind(name, cpus, cores, max(mhz.values()) if mhz else None)


def _order(kind: CoreKind, capacities: Speeds) -> tuple[int, float, float, int]:
    capacity = max((capacities.get(cpu, 0.0) for cpu in kind.cpus), default=0.0)
    rank = _RANKS.get(kind.kind, 1 if is_little_core(kind.kind) else 0)
    return (rank, -capacity, -(kind.max_mhz or 0.0), kind.cpus[0])


def _named(kind: CoreKind, rank: int) -> CoreKind:
    """Kinds that only figures tell apart are called by their rank."""
    if not kind.kind.startswith("uniform"):
        return kind
    name = ("performance", "efficiency", "low-power-efficiency")[min(rank, 2)]
    return CoreKind(name, kind.cpus, kind.physical_cores, kind.max_mhz)
