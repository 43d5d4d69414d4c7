"""The lock of a data folder: one service works in it, and a second one is told whose it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from tuner.errors import BusyError
from tuner.home import Home


@contextmanager
def state_lock(home: Home) -> Iterator[None]:
    """Hold the data folder; it is free again when this process ends, however it ends.

    Raises BusyError, which names the owner, where another one holds it; OSError where no file can be made.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    owner = home.root / "daemon.owner"
    lock = FileLock(home.root / "daemon.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"a service works in {home.root} already ({_whose(owner)}): end that one, or name another folder"
            " in CPUTUNE_HOME"
        ) from None
    try:
        # Not into the lock file itself: whoever tries the lock empties it. On a full disk it goes unsaid.
        with suppress(OSError):
            since = datetime.now().astimezone().isoformat(timespec="seconds")
            owner.write_text(json.dumps({"pid": os.getpid(), "since": since}))
        yield
    finally:
        with suppress(OSError):
            owner.unlink()
        lock.release()


def _whose(path: Path) -> str:
    try:
        told = json.loads(path.read_text())
        return f"process {told['pid']}, since {told['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "its process is unknown"
