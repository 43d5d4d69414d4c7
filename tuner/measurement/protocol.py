"""Versioned messages between the measuring process and its worker: JSON lines over two pipes of their own."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping

from tuner.clock import monotonic_s

VERSION = 1
MAX_LINE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 16


class ChannelClosedError(Exception):
    """The other side is gone."""


class ProtocolError(Exception):
    """What came over the channel is no message of this version; the text shows its beginning."""


class Channel:
    """One side's pair of pipe ends, which it owns; a message is one JSON object on one line.

    The pipes are not stdin and stdout: what an engine prints there is a log and can do no harm.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._buffer = bytearray()
        os.set_blocking(write_fd, False)

    def send(self, message: Mapping[str, object], deadline_s: float | None = None) -> None:
        """Write one message. Raises TimeoutError, or ChannelClosedError when nobody reads any more."""
        line = memoryview(json.dumps({"version": VERSION, **message}, separators=(",", ":")).encode() + b"\n")
        until = _until(deadline_s)
        while line:
            _wait(self._write_fd, select.POLLOUT, until)
            try:
                line = line[os.write(self._write_fd, line[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise ChannelClosedError from None

    def receive(self, deadline_s: float | None = None) -> dict[str, object]:
        """The next message, waited for without polling.

        Raises TimeoutError, ChannelClosedError, or ProtocolError for what is no message or longer than
        `MAX_LINE_BYTES`. A message that is half there at a timeout is not lost.
        """
        until = _until(deadline_s)
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return _decode(line)
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                raise ProtocolError(f"a message of more than {MAX_LINE_BYTES} bytes")
            _wait(self._read_fd, select.POLLIN, until)
            chunk = os.read(self._read_fd, _CHUNK_BYTES)
            if not chunk:
                raise ChannelClosedError
            self._buffer += chunk

    def close(self) -> None:
        """Close both ends; more than once is harmless."""
        for fd in {self._read_fd, self._write_fd} - {-1}:
            os.close(fd)
        self._read_fd = self._write_fd = -1


def _decode(line: bytes) -> dict[str, object]:
    try:
        message = json.loads(line)
    except ValueError:
        raise ProtocolError(f"no JSON: {line[:60]!r}") from None
    if not isinstance(message, dict) or message.get("version") != VERSION:
        raise ProtocolError(f"no message of version {VERSION}: {line[:60]!r}")
    return message


def _until(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else monotonic_s() + deadline_s


def _wait(fd: int, event: int, until: float | None) -> None:
    poller = select.poll()
    poller.register(fd, event)
    while not poller.poll(None if until is None else max(0.0, until - monotonic_s()) * 1000):
        # The kernel counts the time for which this process was stopped, our clock does not.
        if until is not None and monotonic_s() >= until:
            raise TimeoutError
