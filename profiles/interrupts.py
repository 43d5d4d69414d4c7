"""Signals that end a program, held back while something must come to its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def held_back() -> Iterator[None]:
    """Let SIGINT and SIGTERM come right after the block, where Python code handles them.

    An exception from a handler may be raised between any two calls, inside a library too, which can leave
    a lock to nobody. Only the main thread runs handlers: in another one this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[_Held] = []
    try:
        for number in ENDING:
            handler = signal.getsignal(number)
            if callable(handler):
                held.append(_Held(number, handler))
                signal.signal(number, held[-1])
        yield
    finally:
        for one in held:
            one.holding = False
        for one in held:
            signal.signal(one.number, one.handler)
        for one in held:
            if one.came:
                signal.raise_signal(one.number)


class _Held:
    """Stands in for a handler: notes the signal while holding, else hands it on."""

    def __init__(self, number: signal.Signals, handler: Handler) -> None:
        self.number, self.handler = number, handler
        self.holding, self.came = True, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.holding:
            self.came = True
        else:
            self.handler(number, frame)
