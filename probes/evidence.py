"""What the probes of one run share: the reader, the parsed cpuinfo, the topology, the notes."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from probes.caches import CacheInstance, read_cache_instances
from probes.cgroup import Cgroup, read_cgroup
from probes.conditions import Conditions, snapshot
from probes.cpuinfo import CpuInfo, parse_cpuinfo
from probes.effective import Effective, read_effective
from probes.identity import Identity, read_arch, read_identity
from probes.isa import read_features
from probes.memory import Memory, read_memory
from probes.numa import NumaNode, read_numa_nodes
from probes.sysfs import Sysfs
from probes.topology import Topology, read_topology

if TYPE_CHECKING:
    from probes.fallback import HostFacts

__all__ = ["Evidence"]


class Evidence:
    """Facts that more than one probe needs, each read once and only when asked for."""

    def __init__(self, sysfs: Sysfs) -> None:
        self.sysfs = sysfs
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was unknown or odd, in the order of discovery."""
        return tuple(self._notes)

    def note(self, text: str) -> None:
        """Remembers one remark; the same remark twice is one."""
        self._notes[text] = None

    @cached_property
    def cpuinfo(self) -> CpuInfo:
        """The parsed /proc/cpuinfo."""
        return parse_cpuinfo(self.sysfs.text("proc/cpuinfo") or "")

    @cached_property
    def host(self) -> HostFacts | None:
        """What libraries say where /proc and /sys say nothing (systems other than Linux); else None."""
        is_silent = not self.cpuinfo.blocks and not self.sysfs.names("sys/devices/system/cpu")
        if not (self.sysfs.is_live and is_silent):
            return None
        from probes.fallback import ask_host

        return ask_host()

    @cached_property
    def arch(self) -> str | None:
        """The architecture's name as `uname -m` prints it."""
        found = read_arch(self.sysfs, self.cpuinfo)
        return found or (os.uname().machine if self.sysfs.is_live else None)

    @cached_property
    def identity(self) -> Identity:
        """The machine's names."""
        found = read_identity(self.sysfs, self.cpuinfo, self.arch, self.note)
        if self.host is None:
            return found
        return replace(found, vendor=self.host.vendor, model_name=self.host.model_name)

    @cached_property
    def numa_nodes(self) -> tuple[NumaNode, ...]:
        """The NUMA nodes; offline CPUs may still be listed."""
        return read_numa_nodes(self.sysfs)

    @cached_property
    def topology(self) -> Topology:
        """Sockets, cores and threads of the online CPUs."""
        if self.host is not None and self.host.logical_cpus:
            return Topology(logical_cpus=self.host.logical_cpus, physical_cores=self.host.physical_cores)
        return read_topology(self.sysfs, self.cpuinfo, self.arch, self.numa_nodes, self.note)

    @cached_property
    def cache_instances(self) -> tuple[CacheInstance, ...]:
        """Every cache of the online CPUs."""
        return read_cache_instances(self.sysfs, self.cpuinfo, self.topology.online, self.note)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The instruction sets usable by every CPU."""
        if self.host is not None and self.host.features:
            return self.host.features
        return read_features(self.sysfs, self.cpuinfo, self.arch, self.note)

    @cached_property
    def cgroup(self) -> Cgroup:
        """The limits over this process's whole cgroup path; offline CPUs are left out of its cpuset."""
        found = read_cgroup(self.sysfs)
        online = frozenset(self.topology.online)
        if not online or found.cpuset_cpus is None:
            return found
        return replace(found, cpuset_cpus=tuple(cpu for cpu in found.cpuset_cpus if cpu in online) or None)

    @cached_property
    def memory(self) -> Memory:
        """Main memory, swap and huge pages."""
        found = read_memory(self.sysfs)
        if self.host is None:
            return found
        return replace(found, total_bytes=self.host.total_bytes, available_bytes=self.host.available_bytes)

    @cached_property
    def effective(self) -> Effective:
        """What this process may really use."""
        return read_effective(self.sysfs, self.topology, self.cgroup, self.memory, self.note)

    @cached_property
    def conditions(self) -> Conditions:
        """The conditions now, over the usable CPUs."""
        return snapshot(self.sysfs, self.effective.cpus)
