"""The host-wide lock that lets one process measure at a time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from tuner.errors import BusyError, UsageError

_FOLDERS = (Path("/run/lock"), Path("/var/lock"), Path(tempfile.gettempdir()))
_POLL_S = 0.5


def default_path() -> Path:
    """The lock's place, the same for all users of this host: the first lock folder that can be written."""
    for parent in _FOLDERS:
        folder = parent / "cputune"
        if not folder.is_dir():
            # Open to all users, and not sticky: there the kernel refuses to open another user's file.
            with suppress(OSError):
                folder.mkdir()
                folder.chmod(0o777)
        if os.access(folder, os.W_OK):
            return folder / "measuring.lock"
    return Path(tempfile.gettempdir(), "cputune-measuring.lock")


@contextmanager
def measuring_lock(path: Path | None = None, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock; it is free again when this process ends, however it ends.

    Raises BusyError, which names the owner, when another process has it and `wait` is false; UsageError
    when no file can be made at `path`.
    """
    where = default_path() if path is None else path
    lock = FileLock(where, mode=0o666)
    try:
        lock.acquire(timeout=-1 if wait else 0, poll_interval=_POLL_S)
    except Timeout:
        raise BusyError(
            f"another process measures on this machine ({_owner(where)}): two at a time would measure"
            " each other; wait for it, or add --wait"
        ) from None
    except PermissionError:
        raise BusyError(f"the measuring lock {where} belongs to another user and can't be opened") from None
    except OSError as error:
        raise UsageError(
            f"can't use {where} as the measuring lock: {error.strerror}; name a file in CPUTUNE_LOCK"
        ) from None
    try:
        # Not into the lock file itself: whoever tries the lock empties it.
        with suppress(OSError):
            _owner_path(where).write_text(str(os.getpid()))
        yield
    finally:
        with suppress(OSError):
            _owner_path(where).unlink()
        lock.release()


def _owner_path(lock: Path) -> Path:
    return lock.with_suffix(".owner")


def _owner(lock: Path) -> str:
    try:
        return f"process {int(_owner_path(lock).read_text())}"
    except (OSError, ValueError):
        return "its process is unknown"
