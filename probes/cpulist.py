"""Turns the kernel's notations for CPU sets, memory sizes and numbers into values."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = [
    "MAX_CPU_ID",
    "format_cpu_list",
    "parse_cpu_list",
    "parse_cpu_mask",
    "parse_int",
    "parse_size_bytes",
]

MAX_CPU_ID = 65535
"""Larger ids are damage: the largest NR_CPUS that any Linux configuration allows is far below."""

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9})/(\d{1,9}))?)?\Z")
_SIZE = re.compile(r"(\d{1,18})\s*([KMGT]?)(?:i?B)?\Z", re.IGNORECASE)
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The CPU ids of a list such as `0-3,8,16-31:2/4`, sorted and distinct; damaged parts are skipped."""
    found: set[int] = set()
    for part in re.split(r"[,\s]+", text):
        match = _RANGE.match(part)
        if match is None:
            continue
        first = int(match[1])
        last = min(int(match[2] or first), MAX_CPU_ID)
        used, group = int(match[3] or 1), int(match[4] or 1)
        if group < 1:
            continue
        if used >= group:
            found.update(range(first, last + 1))
        else:
            found.update(cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)
    return tuple(sorted(found))


def parse_cpu_mask(text: str) -> tuple[int, ...]:
    """The CPU ids of a hexadecimal mask such as `0000,00000000,000000f0`; a damaged mask gives none."""
    words = text.replace(" ", "").split(",")
    digits = "".join(word if index == 0 else word.rjust(8, "0") for index, word in enumerate(words))
    if len(digits) * 4 > MAX_CPU_ID + 1 or not re.fullmatch(r"[0-9a-fA-F]+", digits):
        return ()
    bits = int(digits, 16)
    return tuple(index for index in range(bits.bit_length()) if bits >> index & 1)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """The shortest list notation of a CPU set: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def parse_int(text: str | None) -> int | None:
    """The decimal or 0x-prefixed integer that `text` is, or None."""
    if text is None or not re.fullmatch(r"[-+]?(?:0[xX][0-9a-fA-F]{1,18}|\d{1,19})", text.strip()):
        return None
    text = text.strip()
    return int(text, 16) if "x" in text.lower() else int(text)


def parse_size_bytes(text: str | None) -> int | None:
    """Bytes of `48K`, `32M`, `491520 kB` or a bare byte count; None when it is none of these."""
    match = _SIZE.match(text.strip()) if text else None
    return int(match[1]) * _SCALE[match[2].upper()] if match else None
