"""The clock of budgets and deadlines, which stands still while a service has stopped this process."""

from __future__ import annotations

import os
import struct
import time
from functools import cache

VARIABLE = "CPUTUNE_STOPPED_FD"
"""The number of an open file that holds the seconds for which this process was stopped so far."""

_SECONDS = struct.Struct("d")


def monotonic_s() -> float:
    """`time.monotonic`, less what `stopped_s` says."""
    return time.monotonic() - stopped_s()


def stopped_s() -> float:
    """Seconds for which whoever started this process has stopped it (SIGSTOP) up to now."""
    fd = _file()
    if fd is None:
        return 0.0
    (seconds,) = _SECONDS.unpack(os.pread(fd, _SECONDS.size, 0))
    return float(seconds)


def tell_stopped(fd: int, seconds: float) -> None:
    """Tell the process that reads this file how long it was stopped, before it goes on."""
    os.pwrite(fd, _SECONDS.pack(seconds), 0)


@cache
def _file() -> int | None:
    # Workers get the environment and not the file: they must not take another one for it.
    number = os.environ.pop(VARIABLE, "")
    return int(number) if number.isdigit() else None
