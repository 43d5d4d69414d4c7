"""Parses /proc/cpuinfo in the forms that the architectures' kernels print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CpuInfo", "parse_cpuinfo"]

_S390_PROCESSOR = re.compile(r"processor (\d{1,6})\Z")


@dataclass(frozen=True)
class CpuInfo:
    """The per-CPU blocks, by CPU id, beside the lines that belong to no CPU; keys are lower case.

    `common["processor text"]` is the model line that old ARM kernels print under the key "Processor".
    """

    blocks: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    common: Mapping[str, str] = field(default_factory=dict)

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPU ids that have a block, ascending."""
        return tuple(sorted(self.blocks))

    def first(self, *keys: str) -> str | None:
        """The first non-empty value of the first of `keys` that has one."""
        for key in keys:
            for block in self.blocks.values():
                if block.get(key):
                    return block[key]
            if self.common.get(key):
                return self.common[key]
        return None

    def by_cpu(self, key: str) -> dict[int, str]:
        """The value of `key` for each CPU that has one.

        A line that stands only after the last of several blocks describes all of them (old ARM kernels).
        """
        found = {cpu: block[key] for cpu, block in self.blocks.items() if key in block}
        if not found and key in self.common:
            return dict.fromkeys(self.blocks, self.common[key])
        if len(found) == 1 < len(self.blocks) and list(self.blocks)[-1] in found:
            return dict.fromkeys(self.blocks, next(iter(found.values())))
        return found

    def is_complete(self) -> bool:
        """Whether the blocks can be all of the machine's CPUs.

        One block alone is taken for an excerpt unless it says that it has no sibling; so are blocks that are
        fewer than their `siblings` lines promise.
        """
        if len(self.blocks) < 2:
            alone = self.blocks.get(0, {})
            return alone.get("siblings") == alone.get("cpu cores") == "1"
        promised: dict[str, int] = {}
        counted: dict[str, int] = {}
        for block in self.blocks.values():
            package = block.get("physical id", "")
            counted[package] = counted.get(package, 0) + 1
            if block.get("siblings", "").isdecimal():
                promised[package] = int(block["siblings"])
        if promised and "" not in counted:
            return all(counted[package] >= count for package, count in promised.items())
        return self.cpus == tuple(range(len(self.blocks)))


def parse_cpuinfo(text: str) -> CpuInfo:
    """The blocks of a cpuinfo text; lines without a colon, and keys met twice in a block, are skipped."""
    blocks: dict[int, dict[str, str]] = {}
    common: dict[str, str] = {}
    keys: dict[str, str] = {}
    current = common
    for line in text.splitlines():
        raw_key, colon, value = line.partition(":")
        if not colon:
            if not line.strip():
                current = common
            continue
        key = keys.get(raw_key)
        if key is None:
            key = keys[raw_key] = " ".join(raw_key.lower().split())
        value = value.strip()
        if key in ("processor", "cpu number"):
            if value.isascii() and value.isdecimal() and len(value) <= 6:
                current = blocks.setdefault(int(value), {})
            elif key == "processor":
                common.setdefault("processor text", value)
            continue
        match = _S390_PROCESSOR.match(key)
        if match is not None:
            blocks.setdefault(int(match[1]), {}).update(_assignments(value))
            continue
        current.setdefault(key, value)
    return CpuInfo(blocks, common)


def _assignments(text: str) -> dict[str, str]:
    """`version = 00,  machine = 2817` as a dictionary."""
    pairs = (part.partition("=") for part in text.split(","))
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}
