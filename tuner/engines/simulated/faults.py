"""Every way in which an engine can fail, on demand, for tests and demonstrations."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
from contextlib import suppress
from typing import NoReturn

from tuner.engines.base import EngineError

VARIABLE = "CPUTUNE_SIMULATED_FAULTS"
"""A JSON object: variant, or "*" for all, -> the name of a fault or a list of them."""

KINDS = (
    "segv", "abort", "sigill", "sigkill", "hang", "slow", "memory", "refuse", "garbage_stdout",
    "garbage_protocol", "exit",
)  # fmt: skip
MOMENTS = ("import", "load", "configure", "decode")
LASTING = (
    "short_output", "nan", "effective_mismatch", "slow_first_rounds", "drift", "outlier", "neighbour",
    "collapse",
)  # fmt: skip
NAMES = frozenset({*(f"{kind}_on_{moment}" for kind in KINDS for moment in MOMENTS), *LASTING})

_held: list[bytearray] = []


def active(variant: str) -> frozenset[str]:
    """The faults that are switched on for a variant; raises EngineError for a name that does not exist."""
    wanted: dict[str, str | list[str]] = json.loads(os.environ.get(VARIABLE, "{}"))
    found: set[str] = set()
    for key in ("*", variant):
        names = wanted.get(key, [])
        found |= {names} if isinstance(names, str) else set(names)
    unknown = sorted(found - NAMES)
    if unknown:
        raise EngineError(f"{VARIABLE} names unknown faults: {', '.join(unknown)}")
    return frozenset(found)


def strike(moment: str, variant: str) -> None:
    """Do what is switched on for this moment; most of it does not return."""
    for name in sorted(active(variant)):
        kind, _, when = name.partition("_on_")
        if when == moment:
            _strike(kind, moment)


def _strike(kind: str, moment: str) -> None:
    if kind in ("segv", "abort", "sigill", "sigkill"):
        _die(kind)
    elif kind == "hang":
        threading.Event().wait()
    elif kind == "slow":
        _work(0.6)
    elif kind == "memory":
        # Never touched: it counts against a limit and takes no memory from the machine.
        _held.extend(bytearray(64 << 20) for _ in range(64))
    elif kind == "refuse":
        raise EngineError(f"the simulated engine refuses to {moment}")
    elif kind == "garbage_stdout":
        os.write(1, b'{"version":1,"id":1,"result":{}}\n\x00\xff garbage\n' * 100)
    elif kind == "garbage_protocol":
        _write_to_pipes(b"garbage that is no message\n")
    elif kind == "exit":
        raise SystemExit(3)


def _die(kind: str) -> NoReturn:
    number = {
        "segv": signal.SIGSEGV, "abort": signal.SIGABRT, "sigill": signal.SIGILL, "sigkill": signal.SIGKILL,
    }[kind]  # fmt: skip
    os.kill(os.getpid(), number)
    raise AssertionError("unreachable")


def _work(cpu_s: float) -> None:
    """Make visible headway, slowly."""
    until = time.process_time() + cpu_s
    with open("/dev/zero", "rb") as zeros:
        while time.process_time() < until:
            zeros.read(1 << 16)


def _write_to_pipes(text: bytes) -> None:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with suppress(OSError):
            if fd > 2 and stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, text)
