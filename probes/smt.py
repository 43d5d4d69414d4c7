"""Tells hidden SMT siblings by running arithmetic on one CPU, then on two."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["candidate_pairs", "smt_ratio"]

_SLICE_S = 0.04
_ROUNDS = 3
_CLEAR_RATIO = 1.8
# Large enough that the interpreter's lock, taken between two calls, is idle; small enough for the caches.
_VALUES = 1 << 18


def candidate_pairs(cores: Sequence[Sequence[int]], cpus: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Pairs of usable CPUs of different cores that a hypervisor may have put on one core: neighbour, half."""
    usable = frozenset(cpus)
    firsts = [core[0] for core in ([cpu for cpu in core if cpu in usable] for core in cores) if core]
    if len(firsts) < 2:
        return ()
    partners = dict.fromkeys((firsts[1], firsts[len(firsts) // 2]))
    return tuple((firsts[0], partner) for partner in partners)


def smt_ratio(cores: Sequence[Sequence[int]], cpus: Sequence[int]) -> float | None:
    """The least throughput of two such CPUs together over one alone (2 for real cores), None if not testable.

    Takes under half a second and changes the affinity of threads of its own only. Work is counted per second
    of CPU time and the best of several rounds counts, so that a busy neighbour doesn't look like a sibling.
    """
    pairs = candidate_pairs(cores, cpus)
    if not pairs or not hasattr(os, "sched_setaffinity"):
        return None
    ratios = []
    for first, second in pairs:
        best = 0.0
        for _ in range(_ROUNDS):
            alone = _work_done((first,))
            together = _work_done((first, second))
            if alone and together:
                best = max(best, together / alone)
            if best >= _CLEAR_RATIO:
                break
        if best:
            ratios.append(best)
    return round(min(ratios), 3) if ratios else None


def _work_done(cpus: Sequence[int]) -> float:
    """Loops per second of CPU time, summed over the pinned threads; 0 when a CPU refuses to be pinned to."""
    gate = threading.Barrier(len(cpus))
    rates = [0.0] * len(cpus)

    def work(index: int, cpu: int) -> None:
        import numpy as np

        values: Any = np.linspace(0.1, 1.0, _VALUES)
        room: Any = np.empty_like(values)
        try:
            os.sched_setaffinity(0, {cpu})
        except OSError:
            gate.abort()
            return
        try:
            gate.wait()
        except threading.BrokenBarrierError:
            return
        count = 0
        begin, used_before = time.perf_counter(), time.thread_time()
        while time.perf_counter() - begin < _SLICE_S:
            # Square roots are bound by one execution unit of the core, which siblings share.
            np.sqrt(values, out=room)
            count += 1
        rates[index] = count / max(time.thread_time() - used_before, 1e-9)

    crew = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(cpus)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return sum(rates) if all(rates) else 0.0
