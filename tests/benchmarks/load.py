"""Other work on this machine, on a known schedule: `python -m tests.benchmarks.load --busy 1 --period 2`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tuner import process

_PROGRAM = """
import sys, time
began, busy, period = map(float, sys.argv[1:])
while True:
    into = (time.monotonic() - began) % period
    if into >= busy:
        time.sleep(period - into)
    else:
        until = time.monotonic() + busy - into
        while time.monotonic() < until:
            pass
"""


class Load:
    """`processes` that are busy for the first `busy_s` of every `period_s`, all at once; a context manager.

    The last CPU is theirs first, then the one before it: each process stays on one.
    """

    def __init__(self, busy_s: float, period_s: float, processes: int = 1) -> None:
        self.busy_s, self.period_s, self.processes = busy_s, period_s, processes
        self._began_s = 0.0
        self.children: list[subprocess.Popen[bytes]] = []

    @classmethod
    def steady(cls, processes: int = 1) -> Self:
        """Busy all the time."""
        return cls(3600.0, 3600.0, processes)

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        cpus = sorted(os.sched_getaffinity(0), reverse=True)
        for number in range(self.processes):
            times = (self._began_s, self.busy_s, self.period_s)
            argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, *map(str, times)]
            self.children.append(process.spawn(argv, affinity=(cpus[number % len(cpus)],)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self.children:
            process.kill_group(child, grace_s=0.0)
        self.children.clear()

    def busy_between(self, begin_s: float, end_s: float) -> float:
        """Seconds of a stretch of `time.monotonic` during which the schedule was busy."""
        return self._busy_until(end_s) - self._busy_until(begin_s)

    def _busy_until(self, at_s: float) -> float:
        periods, into_s = divmod(max(at_s - self._began_s, 0.0), self.period_s)
        return periods * self.busy_s + min(into_s, self.busy_s)


def main(argv: Sequence[str] | None = None) -> None:
    """Be busy for a while."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.load", description=__doc__)
    parser.add_argument("--busy", type=float, default=1.0, help="seconds of each period")
    parser.add_argument("--period", type=float, default=1.0, help="seconds")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args(argv)
    with Load(options.busy, options.period, options.processes):
        time.sleep(options.seconds)


if __name__ == "__main__":
    main()
