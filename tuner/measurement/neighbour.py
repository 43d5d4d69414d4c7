"""A busy neighbour of our own: a process that spins on one CPU as long as it is wanted."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from probes.sysfs import Sysfs
from profiles.vocabulary import TrialStatus
from tuner import process
from tuner.errors import WorkerError

START_S = 10.0
_PROGRAM = "import os\nos.write(1, b'.')\nwhile True:\n    pass\n"
_LIVE = Sysfs()


class Neighbour:
    """Other work on one CPU, from entering to leaving; the kernel ends it with this process at the latest.

    Raises WorkerError (crash) on entering where it does not start.
    """

    def __init__(self, cpu: int) -> None:
        self.cpu = cpu
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return None if self._child is None else self._child.pid

    def ran_ns(self) -> int:
        """Nanoseconds of CPU that it has had so far, from an arbitrary beginning.

        Where the kernel does not say, they pass as if nothing else ran on its CPU.
        """
        fields = (_LIVE.text(f"proc/{self.pid}/schedstat") or "").split()
        return int(fields[0]) if len(fields) == 3 else time.monotonic_ns()

    def __enter__(self) -> Self:
        argv = [sys.executable, "-I", "-S", "-c", _PROGRAM]
        self._child = process.spawn(argv, affinity=(self.cpu,), stdout=subprocess.PIPE)
        try:
            self._wait_until_busy(self._child)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _wait_until_busy(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        ready, _, _ = select.select([child.stdout], [], [], START_S)
        if not ready or not child.stdout.read(1):
            raise WorkerError(TrialStatus.CRASH, f"the busy neighbour did not start on CPU {self.cpu}")

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            process.kill_group(child, grace_s=0.0)
            if child.stdout is not None:
                child.stdout.close()
