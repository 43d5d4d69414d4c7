"""How much memory this process may lock, and how much it has locked."""

from __future__ import annotations

import resource
from pathlib import Path

_CAP_IPC_LOCK = 14
_MIB = 1 << 20


def lock_limit_bytes() -> int | None:
    """The most that may be locked; None where nothing limits it (no rlimit, or CAP_IPC_LOCK)."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY or int(_status("CapEff") or "0", 16) >> _CAP_IPC_LOCK & 1:
        return None
    return limit


def locked_bytes() -> int:
    """What this process has locked."""
    return 1024 * int((_status("VmLck") or "0").split()[0])


def lock_problem(model_bytes: int) -> str | None:
    """Why a model of this size can't be locked into memory, with both numbers; None when it can."""
    limit = lock_limit_bytes()
    if limit is None or limit >= model_bytes:
        return None
    return (
        f"mlock=true: limit {limit // 1024} KiB < model {model_bytes / _MIB:.0f} MiB; allowed is false,"
        " unless root raises the limit (ulimit -l, LimitMEMLOCK=) or grants CAP_IPC_LOCK"
    )


def _status(name: str) -> str | None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return None
