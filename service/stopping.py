"""Stops a child with all that it started, and lets it go on with its clock where it was."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

import psutil

from tuner import clock


class Stopping:
    """The means to stop one child; give its process `environment` and `pass_fds`."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("cputune-stopped")
        clock.tell_stopped(self._fd, 0.0)
        self._total_s = 0.0
        self._since_s: float | None = None
        self._stopped: list[int] = []

    @property
    def environment(self) -> Mapping[str, str]:
        """What the child must find in its environment."""
        return {clock.VARIABLE: str(self._fd)}

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """What the child must inherit."""
        return (self._fd,)

    @property
    def is_stopped(self) -> bool:
        """Whether the child stands still."""
        return self._since_s is not None

    @property
    def total_s(self) -> float:
        """Seconds for which it stood still so far."""
        return self._total_s + (time.monotonic() - self._since_s if self._since_s is not None else 0.0)

    def stop(self, pid: int) -> None:
        """Stop the process and everything below it, whatever group that is in; again is harmless."""
        if self._since_s is not None:
            return
        self._since_s = time.monotonic()
        # From the top: what is stopped starts nothing any more, so a look at what is below it is complete.
        looked_at: list[int] = []
        found = [pid]
        while found:
            for one in found:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGSTOP)
            looked_at += found
            found = [one for one in _below(pid) if one not in looked_at]
        self._stopped = looked_at

    def go_on(self) -> None:
        """Tell the process how long it stood still, and continue everything that was stopped."""
        if self._since_s is None:
            return
        self._total_s, self._since_s = self.total_s, None
        clock.tell_stopped(self._fd, self._total_s)
        for pid in reversed(self._stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = []

    def close(self) -> None:
        """Let the file go, once the child has ended."""
        self._total_s, self._since_s, self._stopped = self.total_s, None, []
        os.close(self._fd)


def _below(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
