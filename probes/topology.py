"""Finds the sockets, dies, clusters, cores and threads of the online CPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from probes.cpuinfo import CpuInfo
from probes.cpulist import MAX_CPU_ID
from probes.numa import NumaNode
from probes.sysfs import Sysfs

__all__ = ["CPU_DIR", "Topology", "online_cpus", "read_topology"]

CPU_DIR = "sys/devices/system/cpu"
_ACPI_TABLE_HEADER_BYTES = 36
_WIDEST_CLUSTER = 8
_STAT_CPU = re.compile(r"cpu(\d{1,5})\s")
Sets = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Topology:
    """Counts of online hardware; a count is None where the sources show only a part of the machine.

    `cores` partitions the online CPUs by core (SMT siblings together), `packages` by socket; both are empty
    where nothing tells them. `threads_per_core` is that of the core with most online CPUs.
    """

    online: tuple[int, ...] = ()
    cores: Sets = ()
    packages: Sets = ()
    logical_cpus: int | None = None
    physical_cores: int | None = None
    threads_per_core: int | None = None
    sockets: int | None = None
    dies: int | None = None
    clusters: int | None = None
    is_low_confidence: bool = False


def read_topology(
    sysfs: Sysfs,
    cpuinfo: CpuInfo,
    arch: str | None,
    nodes: Sequence[NumaNode],
    note: Callable[[str], None],
) -> Topology:
    """The topology of the online CPUs; oddities are told to `note`."""
    online = online_cpus(sysfs, cpuinfo, nodes)
    if not online:
        note("CPU counts unknown: cpuinfo shows a part of the machine only and there is nothing in /sys")
        return Topology()
    reader = _Reader(sysfs, cpuinfo, online)
    cores, doubt = reader.cores()
    if doubt is None:
        doubt = _implausible(cores, arch)
        if doubt is not None:
            cores = tuple((cpu,) for cpu in online)
    if doubt is not None:
        note(f"physical cores, low confidence: {doubt}; counting every CPU as a core")
    packages = reader.packages()
    if not packages:
        note("sockets unknown: nothing tells the packages")
    elif len(packages) == len(cores) > 1 and (reader.id_of(online[0], "physical_package_id") or 0) < 0:
        note("sockets, low confidence: package ids are missing and every core counts as a package")
    elif _are_clusters(packages, reader, arch, nodes):
        note(f"{len(packages)} package ids are core clusters of one socket")
        packages = (online,)
    return Topology(
        online=online,
        cores=cores,
        packages=packages,
        logical_cpus=len(online),
        physical_cores=len(cores),
        threads_per_core=max(map(len, cores)),
        sockets=len(packages) or None,
        dies=reader.dies(),
        clusters=reader.clusters(),
        is_low_confidence=doubt is not None,
    )


def online_cpus(sysfs: Sysfs, cpuinfo: CpuInfo, nodes: Sequence[NumaNode] = ()) -> tuple[int, ...]:
    """The online CPUs; () if unknown.

    By the kernel's list, the CPU folders, /proc/stat, a whole cpuinfo, the list of present CPUs, the NUMA
    nodes: the last two may name offline ones.
    """
    listed = sysfs.cpu_list(f"{CPU_DIR}/online")
    if listed:
        return listed
    folders = [cpu for cpu in sysfs.numbered(CPU_DIR, "cpu") if cpu <= MAX_CPU_ID]
    if folders:
        found = _online_folders(sysfs, folders)
        if found:
            return found
    counted = {match[1] for line in sysfs.lines("proc/stat") if (match := _STAT_CPU.match(line))}
    if counted:
        return tuple(sorted(map(int, counted)))
    if cpuinfo.is_complete():
        return cpuinfo.cpus
    present = sysfs.cpu_list(f"{CPU_DIR}/present") or ()
    return present or tuple(sorted({cpu for node in nodes for cpu in node.cpus}))


def _online_folders(sysfs: Sysfs, folders: list[int]) -> tuple[int, ...]:
    """The kernel removes the topology folder of an offline CPU; cpu0 often has no `online` file at all."""
    switches = {cpu: sysfs.integer(f"{CPU_DIR}/cpu{cpu}/online") for cpu in folders}
    described = {cpu for cpu in folders if sysfs.names(f"{CPU_DIR}/cpu{cpu}/topology")}
    if described:
        described.update(cpu for cpu in folders if switches[cpu] == 1)
        folders = sorted(described)
    return tuple(cpu for cpu in folders if switches[cpu] != 0)


def _implausible(cores: Sets, arch: str | None) -> str | None:
    """Why the claimed cores cannot be true, or None. x86 has two threads a core, on Xeon Phi four."""
    widest = max(map(len, cores))
    is_x86 = arch in ("x86_64", "i686")
    if is_x86 and (widest > 4 or (len(cores) == 1 and widest > 2)):
        return f"{widest} CPUs claim to be threads of one core"
    if widest > 64:
        return f"{widest} CPUs claim to be threads of one core"
    return None


def _are_clusters(packages: Sets, reader: _Reader, arch: str | None, nodes: Sequence[NumaNode]) -> bool:
    """Whether the packages are core clusters: device-tree kernels number clusters of a phone SoC as packages.

    Real sockets have a memory of their own (a NUMA node), or ids that are offsets into the ACPI table.
    """
    if len(packages) < 2 or arch is None or not arch.startswith(("arm", "aarch64", "riscv")):
        return False
    if max(map(len, packages)) > _WIDEST_CLUSTER:
        return False
    if reader.sysfs.exists("sys/firmware/acpi/tables/PPTT"):
        return False
    ids = [reader.id_of(cpus[0], "physical_package_id") for cpus in packages]
    if all(number is not None and number >= _ACPI_TABLE_HEADER_BYTES for number in ids):
        return False
    return sum(1 for node in nodes if node.cpus) < 2


class _Reader:
    """Reads the CPU sets of a topology folder, one file a set instead of one file a CPU."""

    def __init__(self, sysfs: Sysfs, cpuinfo: CpuInfo, online: tuple[int, ...]) -> None:
        self.sysfs = sysfs
        self.cpuinfo = cpuinfo
        self.online = online
        self._online = frozenset(online)

    def cores(self) -> tuple[Sets, str | None]:
        """The core partition with, when it rests on nothing, the reason for doubt."""
        sets = self._partition("core_cpus", "thread_siblings")
        if sets:
            return sets, None
        for keys in (self._sysfs_core_keys(), self._cpuinfo_core_keys()):
            if keys:
                return self._group(keys), None
        return tuple((cpu,) for cpu in self.online), "nothing tells which CPUs share a core"

    def packages(self) -> Sets:
        """The package partition; () when nothing tells it."""
        sets = self._partition("package_cpus", "core_siblings")
        if sets:
            return sets
        ids = {cpu: self.id_of(cpu, "physical_package_id") for cpu in self.online}
        if all(number is not None and number >= 0 for number in ids.values()):
            return self._group({cpu: str(number) for cpu, number in ids.items()})
        for key in ("physical id", "package"):
            told = self._complete(self.cpuinfo.by_cpu(key))
            if told:
                return self._group(told)
        return ()

    def dies(self) -> int | None:
        """The number of dies, where the kernel tells them apart."""
        if (self.id_of(self.online[0], "die_id") or 0) < 0:
            return None
        return len(self._partition("die_cpus")) or None

    def clusters(self) -> int | None:
        """The number of clusters (cores that share a mid-level cache or bus), where the kernel tells them."""
        return len(self._partition("cluster_cpus")) or None

    def id_of(self, cpu: int, name: str) -> int | None:
        """One number of a CPU's topology folder."""
        return self.sysfs.integer(f"{CPU_DIR}/cpu{cpu}/topology/{name}")

    def _partition(self, *names: str) -> Sets:
        """The online CPUs parted by the first of `names` that the first CPU's folder has; () if none has."""
        present = set(self.sysfs.names(f"{CPU_DIR}/cpu{self.online[0]}/topology"))
        for cpu in self.online[1:]:
            if present:
                break
            present = set(self.sysfs.names(f"{CPU_DIR}/cpu{cpu}/topology"))
        stem = next((name for name in names if {name, f"{name}_list"} & present), None)
        if stem is None:
            return ()
        taken: set[int] = set()
        sets = []
        for cpu in self.online:
            if cpu in taken:
                continue
            base = f"{CPU_DIR}/cpu{cpu}/topology/{stem}"
            members = self.sysfs.cpu_set(f"{base}_list", base) or ()
            # A set without its own CPU is damage: such a CPU stands alone.
            rest = self._online - taken
            group = tuple(member for member in members if member in rest) if cpu in members else (cpu,)
            taken.update(group)
            sets.append(group)
        return tuple(sets)

    def _sysfs_core_keys(self) -> dict[int, str]:
        keys = {}
        for cpu in self.online:
            core = self.id_of(cpu, "core_id")
            if core is None or core < 0:
                return {}
            keys[cpu] = f"{self.id_of(cpu, 'physical_package_id')}/{self.id_of(cpu, 'die_id')}/{core}"
        return keys

    def _cpuinfo_core_keys(self) -> dict[int, str]:
        for package_key, core_key in (("physical id", "core id"), ("package", "core")):
            cores = self._complete(self.cpuinfo.by_cpu(core_key))
            packages = self.cpuinfo.by_cpu(package_key)
            if cores:
                return {cpu: f"{packages.get(cpu, '')}/{core}" for cpu, core in cores.items()}
        return {}

    def _complete(self, values: dict[int, str]) -> dict[int, str]:
        """`values` of the online CPUs when all of them have one, else nothing."""
        return {cpu: values[cpu] for cpu in self.online} if self._online <= set(values) else {}

    def _group(self, keys: dict[int, str]) -> Sets:
        groups: dict[str, list[int]] = {}
        for cpu in self.online:
            groups.setdefault(keys[cpu], []).append(cpu)
        return tuple(tuple(cpus) for cpus in groups.values())
