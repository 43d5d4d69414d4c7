"""Gives up what root may do, for tests of what an ordinary user is refused."""

from __future__ import annotations

import ctypes
import resource

_VERSION_3 = 0x20080522


def drop_privileges(*, lockable_bytes: int) -> None:
    """Leave this process without capabilities and with a limit on locked memory; there is no way back.

    Call it in a child process. Raises OSError where the kernel refuses.
    """
    # capset with three empty sets: even root has CAP_IPC_LOCK no more.
    header, empty = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, empty) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (lockable_bytes, lockable_bytes))
