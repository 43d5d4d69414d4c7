"""The parent's handle on a worker process: start, ask with a deadline, and end it whatever it does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, NoReturn, Self, cast

from probes.sysfs import Sysfs
from profiles.vocabulary import TrialStatus
from tuner import process
from tuner.clock import monotonic_s
from tuner.engines.base import Engine
from tuner.errors import WorkerError
from tuner.measurement.protocol import Channel, ChannelClosedError, ProtocolError
from tuner.models.shelf import size_of

CLOSE_S = 5.0
"""What a worker gets to free its engine before it is killed."""

_LOADING = frozenset({"hello", "load"})
_LIVE = Sysfs()


@dataclass(frozen=True)
class Deadlines:
    """How long a worker may take, in seconds.

    A load that has passed its soft deadline, `load_s` plus the file's size over `load_bytes_per_s`, goes on
    while it makes progress, looked at every `progress_s`, up to `load_hard_factor` times as long.
    """

    start_s: float = 60.0
    load_s: float = 20.0
    load_bytes_per_s: float = 50e6
    load_hard_factor: float = 20.0
    progress_s: float = 5.0
    run_s: float = 300.0
    least_run_s: float = 10.0
    """No round is given less, however fast the rounds before it were."""
    hopeless_s: float = 3.0
    """Save a first one of a configuration that is many times slower than others of its engine."""

    def load(self, file_bytes: int) -> tuple[float, float]:
        """The soft and the hard deadline of loading a file."""
        soft = self.load_s + file_bytes / self.load_bytes_per_s
        return soft, soft * self.load_hard_factor


class Worker:
    """A running worker. It is killed, with all that it started, after any failure but a clean refusal."""

    def __init__(
        self, child: subprocess.Popen[bytes], channel: Channel, log_path: Path, oom_kills: int
    ) -> None:
        self._child = child
        self._channel = channel
        self.log_path = log_path
        self._oom_kills = oom_kills
        self._number = 0
        self._closed = False
        self.affinities: Sequence[Sequence[int]] = ()
        self.memory_policies: Sequence[str] = ()
        """Where its threads' memory comes from, as numa_maps names it."""

    @classmethod
    def start(
        cls,
        engine: Engine,
        *,
        role: Literal["session", "scorer"] = "session",
        environment: Mapping[str, str] | None = None,
        affinity: Sequence[int] | None = None,
        memory_node: int | None = None,
        memory_bytes: int | None = None,
        interpreter: str = sys.executable,
        log_path: Path,
        deadline_s: float,
    ) -> Self:
        """Start a worker and import the engine in it, under its affinity, environment and memory limit, its
        memory bound to `memory_node` where the kernel allows that.

        `environment` replaces the caller's (see `placement.environment`). What the engine prints goes to
        `log_path`. Raises WorkerError when the engine can't be imported in time, or its threads do not run
        on `affinity`.
        """
        child_reads, parent_writes = os.pipe()
        parent_reads, child_writes = os.pipe()
        channel = Channel(parent_reads, parent_writes)
        base = process.python_environment(environment)
        try:
            with log_path.open("wb") as log:
                child = process.spawn(
                    process.python_argv(
                        "tuner.measurement.worker",
                        f"--role={role}",
                        f"--reference={engine.session if role == 'session' else engine.scorer}",
                        f"--read-fd={child_reads}",
                        f"--write-fd={child_writes}",
                        interpreter=interpreter,
                    ),
                    # Where an engine crashed is worth a few lines in the log.
                    environment={"PYTHONFAULTHANDLER": "1", **base},
                    affinity=affinity,
                    memory_node=memory_node,
                    memory_bytes=memory_bytes,
                    stdout=log,
                    stderr=log,
                    pass_fds=(child_reads, child_writes),
                )
        except BaseException:
            channel.close()
            raise
        finally:
            os.close(child_reads)
            os.close(child_writes)
        worker = cls(child, channel, log_path, process.oom_kills())
        try:
            worker._check_affinity(worker.request("hello", {}, deadline_s), affinity)
        except BaseException:
            worker.kill()
            raise
        return worker

    @property
    def pid(self) -> int:
        """The worker's process id, which is also its group's."""
        return self._child.pid

    def load(
        self,
        path: Path,
        settings: Mapping[str, object],
        deadlines: Deadlines,
        *,
        affinity: Sequence[int] | None = None,
        limit_s: float = float("inf"),
    ) -> dict[str, object]:
        """Open a model: the `load` operation under a deadline that fits the file; `limit_s` bounds it too."""
        soft_s, hard_s = deadlines.load(size_of(path))
        answer = self.request(
            "load",
            {"path": str(path), "settings": dict(settings)},
            min(soft_s, limit_s),
            hard_s=min(hard_s, limit_s),
            progress_s=deadlines.progress_s,
        )
        # Again after the load: an engine may have started threads that bind themselves elsewhere.
        self._check_affinity(answer, affinity)
        return answer

    def request(
        self,
        op: str,
        payload: Mapping[str, object],
        deadline_s: float,
        *,
        hard_s: float | None = None,
        progress_s: float = 5.0,
    ) -> dict[str, object]:
        """Ask and wait, without polling. With `hard_s`, headway lets the worker pass `deadline_s`.

        Raises WorkerError with the status of what went wrong; `log_tail` is the end of its output.
        """
        if self._closed:
            raise WorkerError(TrialStatus.CRASH, f"'{op}' was asked of a worker that has ended")
        self._number += 1
        began = monotonic_s()
        try:
            self._channel.send({"id": self._number, "op": op, "payload": dict(payload)}, deadline_s)
            message = self._receive(began, deadline_s, hard_s, progress_s)
        except TimeoutError:
            status = TrialStatus.LOAD_TIMEOUT if op in _LOADING else TrialStatus.RUN_TIMEOUT
            self._fail(status, f"no answer to '{op}' within {monotonic_s() - began:.1f} s")
        except ProtocolError as error:
            self._fail(TrialStatus.PROTOCOL, f"the answer to '{op}' is {error}")
        except ChannelClosedError:
            self._fail_by_exit(op)
        except BaseException:
            self.kill()
            raise
        return self._result(op, message)

    def close(self) -> None:
        """Let the engine be freed and the worker end by itself; kill it if it does not."""
        if not self._closed:
            with suppress(WorkerError):
                self.request("close", {}, CLOSE_S)
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(CLOSE_S)
            self.kill()

    def kill(self) -> None:
        """End the worker and everything it started, now; more than once is harmless."""
        if not self._closed:
            self._closed = True
            process.kill_group(self._child, grace_s=0.0)
            self._channel.close()

    def log_tail(self) -> str:
        """The end of what the worker printed."""
        try:
            with self.log_path.open("rb") as log:
                return process.tail(log)
        except OSError:
            return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()

    def _receive(
        self, began: float, deadline_s: float, hard_s: float | None, progress_s: float
    ) -> dict[str, object]:
        try:
            return self._channel.receive(deadline_s if hard_s is None else deadline_s - progress_s)
        except TimeoutError:
            if hard_s is None:
                raise
        # Headway is judged over the last stretch before the soft deadline first, then over each further one.
        while True:
            left_s = began + hard_s - monotonic_s()
            before = _headway(self.pid)
            try:
                return self._channel.receive(max(0.0, min(progress_s, left_s)))
            except TimeoutError:
                if left_s <= progress_s or _headway(self.pid) <= before:
                    raise

    def _result(self, op: str, message: dict[str, object]) -> dict[str, object]:
        error, result = message.get("error"), message.get("result")
        if message.get("id") != self._number or not isinstance(error or result, dict | None):
            self._fail(TrialStatus.PROTOCOL, f"an answer that was not asked for, instead of one to '{op}'")
        if isinstance(error, dict):
            status, reason = TrialStatus(str(error["status"])), str(error["reason"])
            if status is TrialStatus.OUT_OF_MEMORY:
                self._fail(status, f"in '{op}': {reason}")
            refuses_load = op == "load" and status is TrialStatus.ENGINE_ERROR
            raise WorkerError(status, reason, self.log_tail(), refuses_load=refuses_load)
        return cast("dict[str, object]", result if isinstance(result, dict) else {})

    def _check_affinity(self, answer: Mapping[str, object], affinity: Sequence[int] | None) -> None:
        self.affinities = cast("Sequence[Sequence[int]]", answer.get("affinities", ()))
        self.memory_policies = cast("Sequence[str]", answer.get("memory_policies", ()))
        if affinity is None:
            return
        allowed = set(affinity)
        astray = sorted({cpu for cpus in self.affinities for cpu in cpus} - allowed)
        if astray:
            self._fail(
                TrialStatus.INVALID, f"threads may run on CPUs {astray}, asked were {sorted(allowed)} only"
            )

    def _fail_by_exit(self, op: str) -> NoReturn:
        try:
            returncode = self._child.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._fail(TrialStatus.PROTOCOL, f"the worker closed its channel in '{op}' and lives on")
        oom_killed = process.oom_kills() > self._oom_kills
        log = self.log_tail()
        status, text = process.describe_exit(returncode, oom_killed=oom_killed, log_tail=log)
        last = log.rpartition("\n")[2] if returncode > 0 else ""
        self._fail(status, f"the worker ended in '{op}': {text}{': ' if last else ''}{last}")

    def _fail(self, status: TrialStatus, reason: str) -> NoReturn:
        self.kill()
        raise WorkerError(status, reason, self.log_tail())


def _headway(pid: int) -> int:
    """A number that grows while a process reads, faults pages in or computes."""
    stat = (_LIVE.text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    if len(stat) < 13:
        return 0
    minor_faults, major_faults, user_ticks, system_ticks = (int(stat[i]) for i in (7, 9, 11, 12))
    io = (line.split(":") for line in (_LIVE.text(f"proc/{pid}/io") or "").splitlines())
    read = sum(int(value) for name, value in io if name in ("rchar", "read_bytes"))
    return minor_faults + major_faults + user_ticks + system_ticks + read
