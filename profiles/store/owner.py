"""Who is writing: a token of a process that no later process can be mistaken for."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_GONE = frozenset("ZX")


def owner_token() -> str:
    """A token of this process: boot id, process id and start time in clock ticks since boot."""
    return f"{_boot_id()}:{os.getpid()}:{_start_ticks(os.getpid())}"


def is_alive(token: str) -> bool:
    """Whether the process of `token` still runs; a zombie does not, nor does one of an earlier boot."""
    boot_id, _, rest = token.partition(":")
    pid, _, start = rest.partition(":")
    return boot_id == _boot_id() and pid.isdecimal() and start == _start_ticks(int(pid)) != ""


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Some sandboxes have none; a process id with its start time still tells most processes apart.
        return "unknown"


def _start_ticks(pid: int) -> str:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return ""
    # The command name in parentheses may hold spaces and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in _GONE else fields[19]
