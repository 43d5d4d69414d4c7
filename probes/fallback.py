"""Asks psutil and py-cpuinfo, within a deadline, on systems that have no /proc."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["HostFacts", "ask_host", "within"]

T = TypeVar("T")
_DEADLINE_S = 2.0


@dataclass(frozen=True)
class HostFacts:
    """What the libraries tell about the running machine; None where they don't, or were too slow."""

    vendor: str | None = None
    model_name: str | None = None
    features: tuple[str, ...] = ()
    logical_cpus: int | None = None
    physical_cores: int | None = None
    total_bytes: int | None = None
    available_bytes: int | None = None


def ask_host(deadline_s: float = _DEADLINE_S) -> HostFacts:
    """The facts of both libraries after at most two deadlines; a missing or failing one tells nothing."""
    counts = within(deadline_s, _ask_psutil) or HostFacts()
    names = _ask_cpuinfo(deadline_s) or HostFacts()
    return HostFacts(
        vendor=names.vendor,
        model_name=names.model_name,
        features=names.features,
        logical_cpus=counts.logical_cpus,
        physical_cores=counts.physical_cores,
        total_bytes=counts.total_bytes,
        available_bytes=counts.available_bytes,
    )


def within(deadline_s: float, ask: Callable[[], T]) -> T | None:
    """What `ask` returns, or None when it is not done in time; the late thread is left behind as a daemon."""
    answers: queue.SimpleQueue[T] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(ask()), name="cputune-fallback", daemon=True).start()
    try:
        return answers.get(timeout=deadline_s)
    except queue.Empty:
        return None


def _ask_psutil() -> HostFacts | None:
    try:
        import psutil

        memory = psutil.virtual_memory()
        return HostFacts(
            logical_cpus=psutil.cpu_count(logical=True),
            physical_cores=psutil.cpu_count(logical=False),
            total_bytes=memory.total,
            available_bytes=memory.available,
        )
    except (ImportError, OSError, RuntimeError, ValueError):
        return None


def _ask_cpuinfo(deadline_s: float) -> HostFacts | None:
    """The library raises bare exceptions and starts children of its own, so it runs in a process apart."""
    try:
        run = subprocess.run(
            [sys.executable, "-m", "cpuinfo", "--json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadline_s,
            check=True,
        )
        found = json.loads(run.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if not isinstance(found, dict):
        return None
    flags = found.get("flags")
    return HostFacts(
        vendor=_text(found.get("vendor_id_raw")),
        model_name=_text(found.get("brand_raw")),
        features=tuple(sorted(str(flag).lower() for flag in flags)) if isinstance(flags, list) else (),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
