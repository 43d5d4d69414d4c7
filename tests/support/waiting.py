"""Waits for something that another thread or process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return once the condition holds; AssertionError where it does not come about in time."""
    pause = threading.Event()
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come about in time"
        pause.wait(0.01)
