"""Reads the NUMA nodes with their CPUs, memory, distances."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from probes.record import Record
from probes.sysfs import Sysfs

__all__ = ["NumaNode", "read_numa_nodes", "restrict_nodes"]

_NODE_DIR = "sys/devices/system/node"
_MEM_TOTAL = re.compile(r"MemTotal:\s*(\d{1,15})\s*kB")


@dataclass(frozen=True)
class NumaNode:
    """One node. `cpus` is empty for a memory-only node, `memory_bytes` None where no meminfo tells it.

    `distances` are to the nodes in ascending order of their ids, 10 being the node itself.
    """

    id: int
    cpus: tuple[int, ...] = ()
    memory_bytes: int | None = None
    distances: tuple[int, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The node as the probe's JSON shows it."""
        return {
            "id": self.id,
            "cpus": list(self.cpus),
            "memory_bytes": self.memory_bytes,
            "distances": list(self.distances),
        }

    @classmethod
    def from_record(cls, record: Record) -> NumaNode:
        """The node of such a JSON object."""
        return cls(
            id=record.integer("id") or 0,
            cpus=record.integers("cpus"),
            memory_bytes=record.integer("memory_bytes"),
            distances=record.integers("distances"),
        )


def read_numa_nodes(sysfs: Sysfs) -> tuple[NumaNode, ...]:
    """The online nodes in ascending order, their CPUs as the kernel lists them; () where there are none."""
    listed = sysfs.numbered(_NODE_DIR, "node")
    online = set(sysfs.cpu_list(f"{_NODE_DIR}/online") or listed)
    return tuple(_read_node(sysfs, number) for number in listed if number in online)


def restrict_nodes(nodes: tuple[NumaNode, ...], online: Collection[int]) -> tuple[NumaNode, ...]:
    """The nodes without CPUs that are offline; a node's cpulist may still name them."""
    if not online:
        return nodes
    return tuple(replace(node, cpus=tuple(cpu for cpu in node.cpus if cpu in online)) for node in nodes)


def _read_node(sysfs: Sysfs, number: int) -> NumaNode:
    base = f"{_NODE_DIR}/node{number}"
    match = _MEM_TOTAL.search(sysfs.text(f"{base}/meminfo") or "")
    distances = (sysfs.text(f"{base}/distance") or "").split()
    return NumaNode(
        id=number,
        cpus=sysfs.cpu_set(f"{base}/cpulist", f"{base}/cpumap") or (),
        memory_bytes=int(match[1]) * 1024 if match else None,
        distances=tuple(
            int(word) for word in distances if word.isascii() and word.isdecimal() and len(word) < 6
        ),
    )
