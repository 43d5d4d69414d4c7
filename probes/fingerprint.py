"""Hashes what decides a machine's speed into one stable name."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable

from probes.caches import Cache
from probes.cgroup import Cgroup
from probes.core_kinds import CoreKind
from probes.cpulist import format_cpu_list
from probes.effective import Effective
from probes.identity import Identity
from probes.isa import relevant_features
from probes.memory import Memory
from probes.numa import NumaNode
from probes.topology import Topology

__all__ = ["fingerprint", "memory_class"]

_FORM = "cputune-machine-1"
_DIGITS = 16


def fingerprint(
    identity: Identity,
    topology: Topology,
    kinds: Iterable[CoreKind],
    caches: Iterable[Cache],
    nodes: Iterable[NumaNode],
    features: Iterable[str],
    effective: Effective,
    cgroup: Cgroup,
    memory: Memory,
) -> str:
    """16 hexadecimal digits; equal for equal hardware and limits, whatever hostname, kernel or reading order.

    Of the instruction sets only those that inference uses count, so that a kernel which learns a new flag
    name makes no new machine; frequencies, free memory and bandwidth are left out because they flicker.
    """
    facts = {
        "form": _FORM,
        "arch": identity.arch,
        "vendor": identity.vendor,
        "model": identity.model_name,
        "isa": relevant_features(features, identity.arch),
        "sockets": topology.sockets,
        "cores": topology.physical_cores,
        "logical": topology.logical_cpus,
        "threads_per_core": topology.threads_per_core,
        "kinds": sorted((kind.kind, format_cpu_list(kind.cpus), kind.physical_cores) for kind in kinds),
        "caches": sorted(
            (cache.level, cache.type, cache.size_bytes, cache.instances or 0) for cache in caches
        ),
        "numa": sorted((node.id, format_cpu_list(node.cpus), bool(node.memory_bytes)) for node in nodes),
        "cpus": format_cpu_list(effective.cpus),
        "quota": effective.cpu_quota,
        "memory": memory_class(_smaller(memory.total_bytes, cgroup.memory_bytes)),
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def memory_class(size_bytes: int | None) -> float:
    """The half power of two nearest to the size in GiB (16 -> 16.0, 23.5 -> 22.6); 0 for none or unknown.

    Usable memory differs by some percent from kernel to kernel; the classes are 41 % apart.
    """
    if not size_bytes or size_bytes < 1:
        return 0.0
    return round(2 ** (round(2 * math.log2(size_bytes / (1 << 30))) / 2), 3)


def _smaller(first: int | None, second: int | None) -> int | None:
    return min((size for size in (first, second) if size is not None), default=None)
