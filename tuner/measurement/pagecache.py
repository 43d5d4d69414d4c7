"""How much of a file the kernel holds in memory already, which decides what its next load takes."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path


def cached_share(path: Path) -> float | None:
    """The share of the pages of `path` in the page cache, 0 to 1, without touching any (mincore(2)).

    None where the file can't be asked, and for one that this user may not write: of those the kernel says
    nothing true.
    """
    libc = ctypes.CDLL(None)
    try:
        if not os.access(path, os.W_OK):
            return None
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
            pages = -(-len(view) // mmap.PAGESIZE)
            resident = (ctypes.c_ubyte * pages)()
            first = ctypes.c_char.from_buffer(view)
            failed = libc.mincore(ctypes.byref(first), ctypes.c_size_t(len(view)), resident)
            # The view can't be closed while something points into it.
            del first
    except (OSError, ValueError):
        return None
    return None if failed else bytes(resident).count(1) / pages
