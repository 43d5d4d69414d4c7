"""Describes a machine as one frozen value, probed or read back from its JSON document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from probes.advice import Advice, advise
from probes.bandwidth import Bandwidth
from probes.caches import Cache, summarize_caches
from probes.cgroup import Cgroup
from probes.core_kinds import CoreKind, read_core_kinds
from probes.effective import Effective
from probes.errors import ProbeError
from probes.evidence import Evidence
from probes.fingerprint import fingerprint
from probes.identity import Identity
from probes.isa import InferenceIsa, summarize_isa
from probes.memory import HugePages, Memory
from probes.numa import NumaNode, restrict_nodes
from probes.record import Record
from probes.sysfs import Sysfs
from probes.topology import Topology

__all__ = ["PROBES", "SCHEMA_VERSION", "Machine", "probe"]

SCHEMA_VERSION = 1

PROBES: Mapping[str, Callable[[Evidence], Any]] = {
    "identity": lambda seen: seen.identity,
    "topology": lambda seen: seen.topology,
    "core_kinds": lambda seen: read_core_kinds(seen.sysfs, seen.cpuinfo, seen.topology, seen.cache_instances),
    "numa_nodes": lambda seen: restrict_nodes(seen.numa_nodes, frozenset(seen.topology.online)),
    "caches": lambda seen: summarize_caches(seen.cache_instances),
    "features": lambda seen: seen.features,
    "inference_isa": lambda seen: summarize_isa(seen.features, seen.arch),
    "cgroup": lambda seen: seen.cgroup,
    "effective": lambda seen: seen.effective,
    "memory": lambda seen: seen.memory,
    "governor": lambda seen: ", ".join(seen.conditions.governors) or None,
    "advice": lambda seen: advise(seen.conditions, seen.effective),
}
"""Field of `Machine` -> the function that fills it. A new probe is one file, one line here and one field."""


@dataclass(frozen=True)
class Machine:
    """What a machine is, and what the process that probed it may use of it.

    A value that no source tells is None, or empty, with a remark in `notes`.
    """

    fingerprint: str = ""
    identity: Identity = field(default_factory=Identity)
    topology: Topology = field(default_factory=Topology)
    core_kinds: tuple[CoreKind, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    caches: tuple[Cache, ...] = ()
    features: tuple[str, ...] = ()
    inference_isa: InferenceIsa = field(default_factory=InferenceIsa)
    cgroup: Cgroup = field(default_factory=Cgroup)
    effective: Effective = field(default_factory=Effective)
    memory: Memory = field(default_factory=Memory)
    governor: str | None = None
    bandwidth: Bandwidth | None = None
    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def arch(self) -> str | None:
        """The architecture as `uname -m` prints it."""
        return self.identity.arch

    @property
    def vendor(self) -> str | None:
        """The vendor as the kernel prints it."""
        return self.identity.vendor

    @property
    def model_name(self) -> str | None:
        """The CPU's name; core designs of a mixed machine are joined by " + "."""
        return self.identity.model_name

    @property
    def kernel(self) -> str | None:
        """The kernel's release."""
        return self.identity.kernel

    @property
    def hostname(self) -> str | None:
        """A label, never identity."""
        return self.identity.hostname

    @property
    def sockets(self) -> int | None:
        """Processor packages."""
        return self.topology.sockets

    @property
    def physical_cores(self) -> int | None:
        """Online cores."""
        return self.topology.physical_cores

    @property
    def logical_cpus(self) -> int | None:
        """Online CPUs."""
        return self.topology.logical_cpus

    @property
    def threads_per_core(self) -> int | None:
        """Threads of the core that has most."""
        return self.topology.threads_per_core

    @property
    def cpu_nodes(self) -> tuple[NumaNode, ...]:
        """The NUMA nodes that have online CPUs: those that threads can be placed on."""
        return tuple(node for node in self.numa_nodes if node.cpus)

    @property
    def bandwidth_gbps(self) -> float | None:
        """The best measured read bandwidth in 10^9 bytes a second; None unless measured."""
        return None if self.bandwidth is None else self.bandwidth.best_gbps

    def with_bandwidth(self, bandwidth: Bandwidth) -> Machine:
        """This machine with a measured bandwidth; the fingerprint stays."""
        extra = tuple(note for note in bandwidth.notes if note not in self.notes)
        return replace(self, bandwidth=bandwidth, notes=(*self.notes, *extra))

    def to_json(self) -> dict[str, object]:
        """The document that `cputune probe --json` prints; `from_json` reads it back."""
        names, shape = self.identity, self.topology
        return {
            "schema_version": SCHEMA_VERSION,
            "fingerprint": self.fingerprint,
            "arch": names.arch,
            "vendor": names.vendor,
            "model_name": names.model_name,
            "kernel": names.kernel,
            "hostname": names.hostname,
            "is_virtual": names.is_virtual,
            "sockets": shape.sockets,
            "dies": shape.dies,
            "clusters": shape.clusters,
            "physical_cores": shape.physical_cores,
            "logical_cpus": shape.logical_cpus,
            "threads_per_core": shape.threads_per_core,
            "is_low_confidence": shape.is_low_confidence,
            "online_cpus": list(shape.online),
            "cores": [list(cpus) for cpus in shape.cores],
            "packages": [list(cpus) for cpus in shape.packages],
            "core_kinds": [kind.to_json() for kind in self.core_kinds],
            "numa_nodes": [node.to_json() for node in self.numa_nodes],
            "caches": [cache.to_json() for cache in self.caches],
            "features": list(self.features),
            "inference_isa": self.inference_isa.to_json(),
            "cgroup": self.cgroup.to_json(),
            "effective": self.effective.to_json(),
            "memory": self.memory.to_json(),
            "huge_pages": self.memory.huge_pages.to_json(),
            "governor": self.governor,
            "bandwidth_gbps": self.bandwidth_gbps,
            "bandwidth": None if self.bandwidth is None else self.bandwidth.to_json(),
            "advice": [item.to_json() for item in self.advice],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, document: object) -> Machine:
        """The machine of such a document; unknown keys are ignored, missing ones are unknown values.

        Raises `ProbeError` when it is no such document: no fingerprint, a newer schema, a wrong type.
        """
        record = Record(document)
        version = record.integer("schema_version", low=1)
        if version is None or version > SCHEMA_VERSION:
            raise ProbeError(
                "the machine document has no schema_version that this cputune reads",
                seen=version,
                allowed=f"1 to {SCHEMA_VERSION}",
                hint="write it with `cputune probe --json`",
            )
        digits = record.text("fingerprint")
        if not digits:
            raise ProbeError(
                "the machine document has no fingerprint", hint="write it with `cputune probe --json`"
            )
        features = tuple(sorted(name.lower() for name in record.texts("features")))
        isa = record.record("inference_isa")
        topology = _topology_from(record)
        has_limits = record.has("effective")
        return cls(
            fingerprint=digits,
            identity=_identity_from(record),
            topology=topology,
            core_kinds=record.each("core_kinds", CoreKind.from_record),
            numa_nodes=record.each("numa_nodes", NumaNode.from_record),
            caches=record.each("caches", Cache.from_record),
            features=features,
            inference_isa=InferenceIsa.from_record(isa)
            if record.has("inference_isa")
            else summarize_isa(features, record.text("arch")),
            cgroup=Cgroup.from_record(record.record("cgroup")),
            effective=Effective.from_record(record.record("effective")) if has_limits else _all_of(topology),
            memory=Memory.from_record(
                record.record("memory"), HugePages.from_record(record.record("huge_pages"))
            ),
            governor=record.text("governor"),
            bandwidth=_bandwidth_from(record),
            advice=record.each("advice", Advice.from_record),
            notes=record.texts("notes"),
        )


def probe(root: str | Path = "/") -> Machine:
    """The machine whose /proc and /sys lie below `root`; absent and odd files become notes.

    With another root than "/" nothing is asked of the running machine. Raises `ProbeError` when `root` is no
    directory.
    """
    seen = Evidence(Sysfs(root))
    machine = Machine(**{name: read(seen) for name, read in PROBES.items()})
    return replace(machine, fingerprint=_fingerprint_of(machine), notes=seen.notes)


def _fingerprint_of(machine: Machine) -> str:
    return fingerprint(
        machine.identity,
        machine.topology,
        machine.core_kinds,
        machine.caches,
        machine.numa_nodes,
        machine.features,
        machine.effective,
        machine.cgroup,
        machine.memory,
    )


def _identity_from(record: Record) -> Identity:
    return Identity(
        arch=record.text("arch"),
        vendor=record.text("vendor"),
        model_name=record.text("model_name"),
        kernel=record.text("kernel"),
        hostname=record.text("hostname"),
        is_virtual=record.flag("is_virtual"),
    )


def _topology_from(record: Record) -> Topology:
    return Topology(
        online=record.integers("online_cpus"),
        cores=record.integer_lists("cores"),
        packages=record.integer_lists("packages"),
        logical_cpus=record.integer("logical_cpus", low=1),
        physical_cores=record.integer("physical_cores", low=1),
        threads_per_core=record.integer("threads_per_core", low=1),
        sockets=record.integer("sockets", low=1),
        dies=record.integer("dies", low=1),
        clusters=record.integer("clusters", low=1),
        is_low_confidence=record.flag("is_low_confidence") or False,
    )


def _all_of(topology: Topology) -> Effective:
    return Effective(cpus=topology.online, cpu_count=topology.logical_cpus or 1)


def _bandwidth_from(record: Record) -> Bandwidth | None:
    if record.has("bandwidth"):
        return Bandwidth.from_record(record.record("bandwidth"))
    best = record.number("bandwidth_gbps")
    return None if best is None else Bandwidth(gbps_by_threads=((0, best),), buffer_bytes=0)
