"""The signature of a collapse: tokens come several times slower than before while all threads are busy.

Threads that spin while they wait for one that another process keeps from its CPU are as busy as ever, and
get nowhere: no waiting shows, and a round may take forty times as long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median

SLOWER = 3.0
BUSY_SHARE = 0.7
"""Of the threads' time; one of two threads that shares its CPU with a neighbour leaves 0.75."""
SLOW_STEPS = 3
"""In a row: an engine's own spikes are single."""
FIRST_GAPS = 4
"""A round without an earlier one of its configuration is compared with its own first gaps."""
LEAST_WATCHED_S = 0.5
QUIET_S = 0.5
QUIET_SHARE = 0.05
LONGEST_WAIT_S = 5.0


class CollapseError(Exception):
    """A round was given up; the text says what was seen."""


class Watch:
    """Watches one round's steps from its first tokens on; it reads a counter only where a step was slow.

    `threads` is how many are busy in a sound step, `usual_ns` the gap of earlier rounds of the same
    configuration, `cpu_ns` reads the process's CPU time. A step that does not end is stopped by `interrupt`,
    called from another thread, where that is given and `usual_ns` is known.
    """

    def __init__(
        self,
        threads: int,
        cpu_ns: Callable[[], float],
        *,
        usual_ns: float | None = None,
        interrupt: Callable[[], None] | None = None,
    ) -> None:
        self._threads = threads
        self._cpu_ns = cpu_ns
        self._usual_ns = usual_ns
        self._interrupt = interrupt
        self._gaps_ns: list[int] = []
        self._last_ns: int | None = None
        self._slow = 0
        self._slow_since: tuple[int, float] = (0, 0.0)
        self._tokens = 0
        self._began = threading.Event()
        self._ended = threading.Event()
        self._stopped = threading.Event()
        self._guard: threading.Thread | None = None

    @property
    def median_gap_ns(self) -> float | None:
        """Of the steps seen; None where there were none."""
        return median(self._gaps_ns) if self._gaps_ns else None

    def __enter__(self) -> Watch:
        if self._interrupt is not None and self._usual_ns is not None:
            self._guard = threading.Thread(target=self._guarded, daemon=True)
            self._guard.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._began.set()
        if self._guard is not None:
            self._guard.join()

    def begin(self, now_ns: int, tokens: int) -> None:
        """The first tokens are there; `tokens` steps follow."""
        self._last_ns, self._tokens = now_ns, tokens
        self._began.set()

    def step(self, now_ns: int) -> None:
        """A step ended; raises CollapseError where the signature is complete."""
        if self._last_ns is None:
            return
        gap_ns, self._last_ns = now_ns - self._last_ns, now_ns
        self._gaps_ns.append(gap_ns)
        if self._stopped.is_set():
            raise CollapseError("collapse: a step did not end while all threads were busy")
        usual_ns = self._usual_ns
        if usual_ns is None and len(self._gaps_ns) > FIRST_GAPS:
            usual_ns = median(self._gaps_ns[:FIRST_GAPS])
        if usual_ns is None or gap_ns <= SLOWER * usual_ns:
            self._slow = 0
            return
        self._slow += 1
        if self._slow == 1:
            self._slow_since = now_ns, self._cpu_ns()
        elif self._slow >= SLOW_STEPS and self._is_busy(now_ns, *self._slow_since):
            raise CollapseError(
                f"collapse: tokens came {gap_ns / usual_ns:.0f} times slower while all threads were busy"
            )

    def _is_busy(self, now_ns: int, since_ns: int, cpu_ns: float) -> bool:
        return self._cpu_ns() - cpu_ns >= BUSY_SHARE * self._threads * (now_ns - since_ns)

    def _guarded(self) -> None:
        # It sleeps through every sound round: the wait ends with the round, or long after it should have.
        self._began.wait()
        assert self._usual_ns is not None
        assert self._interrupt is not None
        before = time.perf_counter_ns(), self._cpu_ns()
        allowed_s = max(LEAST_WATCHED_S, SLOWER * self._usual_ns * self._tokens / 1e9)
        if self._ended.wait(allowed_s) or not self._is_busy(time.perf_counter_ns(), *before):
            return
        self._stopped.set()
        self._interrupt()


def wait_for_quiet(
    busy_ns: Callable[[], int],
    cpus: int,
    tick_ns: float,
    *,
    limit_s: float = LONGEST_WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until `cpus` CPUs were idle for half a second; False where `limit_s` went by before.

    `busy_ns` reads the CPUs' busy time, which the kernel counts in ticks.
    """
    until = clock() + limit_s
    allowed_ns = cpus * (QUIET_SHARE * QUIET_S * 1e9 + tick_ns)
    while clock() + QUIET_S <= until:
        before = busy_ns()
        sleep(QUIET_S)
        if busy_ns() - before <= allowed_ns:
            return True
    return False
