"""The parent's side of a serving worker: starts it, sends it messages, hands out what it says."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from subprocess import Popen
from typing import Any, Self

import psutil

from profiles.vocabulary import Setting
from service.generator.launching import Serving
from tuner import process
from tuner.measurement import placement
from tuner.measurement.protocol import MAX_LINE_BYTES, VERSION, ProtocolError


class Link:
    """A worker process with its two pipes; all of it lives on one event loop."""

    def __init__(
        self,
        child: Popen[bytes],
        reader: asyncio.StreamReader,
        read_pipe: asyncio.ReadTransport,
        write_pipe: asyncio.WriteTransport,
        log_path: Path,
    ) -> None:
        self._child = child
        self._reader = reader
        self._read_pipe = read_pipe
        self._write_pipe = write_pipe
        self._log_path = log_path

    @classmethod
    async def start(cls, serving: Serving, run_settings: Mapping[str, Setting], log_path: Path) -> Self:
        """Start a worker and ask it to open the model; `ready` or `fatal` is among the first messages."""
        child_reads, parent_writes = os.pipe()
        parent_reads, child_writes = os.pipe()
        log_path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log_path.open("ab") as log:
                child = process.spawn(
                    process.python_argv(
                        "service.generator.worker",
                        f"--reference={serving.engine.session}",
                        f"--read-fd={child_reads}",
                        f"--write-fd={child_writes}",
                    ),
                    environment={
                        "PYTHONFAULTHANDLER": "1",
                        **process.python_environment(serving.environment),
                    },
                    affinity=serving.affinity,
                    memory_node=placement.node(serving.config),
                    memory_bytes=serving.memory_bytes,
                    stdout=log,
                    stderr=log,
                    pass_fds=(child_reads, child_writes),
                )
        except BaseException:
            os.close(parent_reads)
            os.close(parent_writes)
            raise
        finally:
            os.close(child_reads)
            os.close(child_writes)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        read_pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(parent_reads, "rb")
        )
        write_pipe, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(parent_writes, "wb"))
        link = cls(child, reader, read_pipe, write_pipe, log_path)
        link.send(
            {
                "op": "open",
                "path": str(serving.path),
                "load_settings": dict(serving.load_settings),
                "run_settings": dict(run_settings),
                "context_tokens": serving.context_tokens,
                "streams": serving.streams,
            }
        )
        return link

    @property
    def pid(self) -> int:
        """The worker's process id, which is also its group's."""
        return self._child.pid

    def cpu_s(self) -> float:
        """CPU time that the worker has used, in seconds; 0 once it is gone."""
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)

    def send(self, message: Mapping[str, object]) -> None:
        """Send a message without waiting; a worker that is gone does not get it."""
        if not self._write_pipe.is_closing():
            line = json.dumps({"version": VERSION, "id": 0, **message}, separators=(",", ":"))
            self._write_pipe.write(line.encode() + b"\n")

    async def messages(self) -> AsyncIterator[Mapping[str, Any]]:
        """What the worker says, until it is gone. Raises ProtocolError for what is no message."""
        try:
            while line := await self._reader.readline():
                yield json.loads(line)
        except ValueError as error:
            raise ProtocolError(f"no message: {error}") from None

    def ending(self) -> str:
        """How the worker ended, in one line; ends it if it has not."""
        self.kill()
        try:
            with self._log_path.open("rb") as log:
                tail = process.tail(log)
        except OSError:
            tail = ""
        return process.describe_exit(self._child.returncode, log_tail=tail)[1]

    def kill(self) -> None:
        """End the worker and everything it started, now; more than once is harmless."""
        process.kill_group(self._child, grace_s=0.0)
        self._read_pipe.close()
        self._write_pipe.close()
