"""Keeps made results in one folder: found again, held while in use, the least recently used dropped first."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from filelock import FileLock, Timeout

from tuner.engines.base import FOLDERS
from tuner.errors import ModelFileError

_SPARE_BYTES = 64 << 20
"""Left free on the disk beside the new result."""

_PARTIAL = ".partial"
_SUFFIXES = frozenset({".gguf", *(f".{kind}" for kind in FOLDERS)})


class Shelf:
    """Files KEY.gguf and folders KEY.FORMAT.

    What was held stays until `close`, in every process: a shared lock is on it.
    """

    def __init__(self, directory: Path, cap_bytes: int) -> None:
        self.directory = directory
        self._cap_bytes = cap_bytes
        self._held: dict[Path, int] = {}

    def path(self, key: str, kind: str) -> Path:
        """Where the result of a key is, or would be."""
        return self.directory / f"{key}.{kind if kind in FOLDERS else 'gguf'}"

    def turn(self, key: str, deadline_s: float) -> FileLock:
        """The right to make the result of a key; entering raises filelock.Timeout."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return FileLock(self.directory / f"{key}.lock", timeout=deadline_s)

    def hold(self, path: Path) -> bool:
        """Keep others from dropping a result, and mark it as used now; False where there is none."""
        if path not in self._held:
            handle = _open(path)
            if handle is None:
                return False
            fcntl.flock(handle, fcntl.LOCK_SH)
            # It may have been dropped between opening and locking.
            if not path.exists() or not os.path.samestat(os.fstat(handle), path.stat()):
                os.close(handle)
                return False
            self._held[path] = handle
        os.utime(path)
        return True

    def partial(self, path: Path) -> Path:
        """Where a maker writes what will be `path`."""
        return path.with_name(f"{path.stem}.{os.getpid()}{_PARTIAL}")

    def publish(self, partial: Path, path: Path) -> None:
        """Give a finished result its name, after its bytes are on the disk."""
        for target in {*files_below(partial), partial}:
            _sync(target)
        os.replace(partial, path)
        _sync(path.parent)

    def sweep(self, own_key: str) -> None:
        """Remove what killed makers left: a partial result whose key nobody has locked."""
        for partial in self.directory.glob(f"*{_PARTIAL}"):
            key = partial.name.partition(".")[0]
            if key == own_key:
                erase(partial)
                continue
            try:
                with FileLock(self.directory / f"{key}.lock", timeout=0):
                    erase(partial)
            except Timeout:
                pass

    def make_room(self, what: str, wanted_bytes: int) -> None:
        """Drop what nobody holds until there is room under the cap and on the disk; ModelFileError if not."""
        entries = [entry for entry in self.directory.iterdir() if entry.suffix in _SUFFIXES]
        sizes = {entry: size_of(entry) for entry in entries}
        total = sum(sizes.values())
        for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime_ns):
            if total + wanted_bytes <= self._cap_bytes and self._disk_has(wanted_bytes):
                return
            if self.drop(entry):
                total -= sizes[entry]
        if total + wanted_bytes > self._cap_bytes:
            raise ModelFileError(
                f"no room for {what} of {_mib(wanted_bytes)} in {self.directory}:"
                f" {_mib(total)} of {_mib(self._cap_bytes)} are in use"
            )
        if not self._disk_has(wanted_bytes):
            free = shutil.disk_usage(self.directory).free
            raise ModelFileError(
                f"no room for {what} of {_mib(wanted_bytes)}: the disk of {self.directory} has"
                f" {_mib(free)} free"
            )

    def drop(self, path: Path) -> bool:
        """Delete a result that nobody holds, also where it is gone already; False where somebody does."""
        handle = _open(path)
        if handle is None:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                # Half a folder must not keep the name of a whole one.
                gone = self.partial(path)
                os.replace(path, gone)
                erase(gone)
            else:
                path.unlink(missing_ok=True)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
        return True

    def close(self) -> None:
        """Let everything go; it may then be dropped to make room."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def _disk_has(self, wanted_bytes: int) -> bool:
        return shutil.disk_usage(self.directory).free >= wanted_bytes + _SPARE_BYTES


def files_below(path: Path) -> list[Path]:
    """The files of a result, sorted: itself, or all in its folder and below."""
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def size_of(path: Path) -> int:
    """The bytes of a result's files."""
    return sum(file.stat().st_size for file in files_below(path))


def erase(path: Path) -> None:
    """Delete a file or a folder with all that is in it; nothing where there is none."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"
