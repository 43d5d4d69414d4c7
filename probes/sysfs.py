"""The only reader of /proc and /sys, with an injectable root."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from probes.cpulist import parse_cpu_list, parse_cpu_mask, parse_int, parse_size_bytes
from probes.errors import ProbeError

__all__ = ["Sysfs"]

_READ_LIMIT_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 18
# O_NONBLOCK keeps a pipe that lies in a damaged tree from blocking the reader for ever.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Sysfs:
    """Reads text files below `root`; an absent, unreadable or odd file is None, never an exception.

    With another root than "/" nothing outside of it is read: symbolic links that leave it count as absent.
    Raises `ProbeError` when `root` is not a directory.
    """

    def __init__(self, root: str | Path = "/") -> None:
        self.root = os.path.realpath(root)
        if not os.path.isdir(self.root):
            raise ProbeError(
                "the root to probe is not a directory",
                seen=str(root),
                hint="give the folder that holds proc/ and sys/",
            )
        self._prefix = self.root.rstrip("/") + "/"
        self._inside: dict[str, bool] = {self.root.rstrip("/"): True}

    @property
    def is_live(self) -> bool:
        """Whether this reads the running machine, so that system calls may complete what files leave open."""
        return self.root == "/"

    def text(self, path: str) -> str | None:
        """The content of `path` (relative to the root) without NULs and surrounding blanks."""
        data = self.raw(path)
        return None if data is None else data.decode("utf-8", "replace").replace("\0", "").strip()

    def raw(self, path: str) -> bytes | None:
        """The bytes of `path`, at most 32 MiB of them."""
        full = self._locate(path)
        if full is None:
            return None
        try:
            handle = os.open(full, _OPEN_FLAGS)
        except (OSError, ValueError):
            return None
        try:
            data = os.read(handle, _CHUNK_BYTES)
            if not data:
                return data
            parts = [data]
            size = len(data)
            while size < _READ_LIMIT_BYTES:
                data = os.read(handle, _CHUNK_BYTES)
                if not data:
                    break
                parts.append(data)
                size += len(data)
            return b"".join(parts)
        except OSError:
            return None
        finally:
            os.close(handle)

    def lines(self, path: str) -> list[str]:
        """The lines of `path`; none when it is absent."""
        return (self.text(path) or "").splitlines()

    def integer(self, path: str) -> int | None:
        """The one integer that `path` holds."""
        return parse_int(self.text(path))

    def size_bytes(self, path: str) -> int | None:
        """The size that `path` holds, in bytes (`48K`, `1024`)."""
        return parse_size_bytes(self.text(path))

    def cpu_list(self, path: str) -> tuple[int, ...] | None:
        """The CPU set in list notation that `path` holds; None when the file is absent."""
        text = self.text(path)
        return None if text is None else parse_cpu_list(text)

    def cpu_set(self, list_path: str, mask_path: str) -> tuple[int, ...] | None:
        """A CPU set from the list file, else from the mask file; None when neither says anything."""
        listed = self.text(list_path)
        if listed:
            return parse_cpu_list(listed)
        mask = self.text(mask_path)
        if mask is not None:
            return parse_cpu_mask(mask)
        return None if listed is None else ()

    def names(self, path: str) -> list[str]:
        """The sorted names in the directory `path`; none when it is absent."""
        full = self._locate(path)
        if full is None:
            return []
        try:
            return sorted(os.listdir(full))
        except (OSError, ValueError):
            return []

    def numbered(self, path: str, stem: str) -> list[int]:
        """The numbers N for which `path` holds an entry named stem + N, ascending."""
        tails = (name[len(stem) :] for name in self.names(path) if name.startswith(stem))
        return sorted(int(tail) for tail in tails if tail.isascii() and tail.isdigit() and len(tail) <= 9)

    def exists(self, path: str) -> bool:
        """Whether `path` is there."""
        full = self._locate(path)
        return full is not None and os.path.exists(full)

    def _locate(self, path: str) -> str | None:
        if "\0" in path:
            return None
        full = self._prefix + path.lstrip("/")
        if self.is_live:
            return full
        folder, _, name = full.rpartition("/")
        if name in ("", ".", "..") or "/../" in full:
            folder, full = self._real_parts(full)
        if not self._is_inside(folder):
            return None
        return full if self._entry_stays_inside(full) else None

    def _real_parts(self, full: str) -> tuple[str, str]:
        normal = os.path.normpath(full)
        return normal.rpartition("/")[0], normal

    def _is_inside(self, folder: str) -> bool:
        known = self._inside.get(folder)
        if known is None:
            parent = folder.rpartition("/")[0]
            known = (
                len(folder) > len(self.root) and self._is_inside(parent) and self._entry_stays_inside(folder)
            )
            self._inside[folder] = known
        return known

    def _entry_stays_inside(self, full: str) -> bool:
        try:
            is_link = stat.S_ISLNK(os.lstat(full).st_mode)
        except OSError as error:
            return error.errno == errno.ENOENT
        except ValueError:
            return False
        if not is_link:
            return True
        return os.path.realpath(full).startswith(self._prefix)
