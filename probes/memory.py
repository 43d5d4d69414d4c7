"""Reads main memory, swap, huge pages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.cpulist import parse_size_bytes
from probes.record import Record
from probes.sysfs import Sysfs

__all__ = ["HugePages", "Memory", "read_memory"]


@dataclass(frozen=True)
class HugePages:
    """Reserved huge pages of one size, beside the transparent huge page mode (always, madvise, never)."""

    transparent: str | None = None
    size_bytes: int | None = None
    total: int | None = None
    free: int | None = None

    def to_json(self) -> dict[str, object]:
        """The huge pages as the probe's JSON shows them."""
        return {
            "transparent": self.transparent,
            "size_bytes": self.size_bytes,
            "total": self.total,
            "free": self.free,
        }

    @classmethod
    def from_record(cls, record: Record) -> HugePages:
        """The huge pages of such a JSON object."""
        return cls(
            transparent=record.text("transparent"),
            size_bytes=record.integer("size_bytes"),
            total=record.integer("total"),
            free=record.integer("free"),
        )


@dataclass(frozen=True)
class Memory:
    """The whole machine's memory in bytes, as /proc/meminfo tells it; None where it does not."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    huge_pages: HugePages = HugePages()

    @property
    def swap_used_bytes(self) -> int | None:
        """Swap in use."""
        if self.swap_total_bytes is None or self.swap_free_bytes is None:
            return None
        return max(0, self.swap_total_bytes - self.swap_free_bytes)

    def to_json(self) -> dict[str, object]:
        """The memory as the probe's JSON shows it."""
        return {
            "total_bytes": self.total_bytes,
            "available_bytes": self.available_bytes,
            "swap_total_bytes": self.swap_total_bytes,
            "swap_free_bytes": self.swap_free_bytes,
        }

    @classmethod
    def from_record(cls, record: Record, huge_pages: HugePages) -> Memory:
        """The memory of such a JSON object."""
        return cls(
            total_bytes=record.integer("total_bytes"),
            available_bytes=record.integer("available_bytes"),
            swap_total_bytes=record.integer("swap_total_bytes"),
            swap_free_bytes=record.integer("swap_free_bytes"),
            huge_pages=huge_pages,
        )


def read_memory(sysfs: Sysfs) -> Memory:
    """The memory facts; for kernels without MemAvailable (before 3.14) free, buffers, cache are added."""
    sizes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for line in sysfs.lines("proc/meminfo"):
        name, _, value = line.partition(":")
        size = parse_size_bytes(value)
        if size is not None:
            (sizes if value.rstrip().endswith("B") else counts)[name.strip()] = size
    available = sizes.get("MemAvailable")
    if available is None and "MemFree" in sizes:
        available = sizes["MemFree"] + sizes.get("Buffers", 0) + sizes.get("Cached", 0)
    total = sizes.get("MemTotal")
    if available is not None and total is not None:
        available = min(available, total)
    return Memory(
        total_bytes=total,
        available_bytes=available,
        swap_total_bytes=sizes.get("SwapTotal"),
        swap_free_bytes=sizes.get("SwapFree"),
        huge_pages=HugePages(
            transparent=_transparent_mode(sysfs),
            size_bytes=sizes.get("Hugepagesize"),
            total=counts.get("HugePages_Total"),
            free=counts.get("HugePages_Free"),
        ),
    )


def _transparent_mode(sysfs: Sysfs) -> str | None:
    match = re.search(r"\[(\w+)\]", sysfs.text("sys/kernel/mm/transparent_hugepage/enabled") or "")
    return match[1] if match else None
