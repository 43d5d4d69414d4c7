"""Whether something outside disturbed a round, judged from counters only and never from its result."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

# Thresholds of docs/measuring.md. All are shares of the round's wall time where no unit is named.
RUN_DELAY_SHARE = 0.03
RUN_DELAY_NS = 2e6
OTHERS_SHARE = 0.03
STEAL_SHARE = 0.02
STEAL_TICKS_PER_CPU = 2
PRESSURE_SHARE = 0.05
CANARY_HASH_RATIO = 1.25
CANARY_MEMORY_RATIO = 1.5
CANARY_HISTORY = 8
"""Fewer rounds than this say nothing about how fast the canary is when quiet."""

TICK_NS = 1e9 / os.sysconf("SC_CLK_TCK")

STOPPED_NS = "stopped_ns"
"""The fact of a round during which a service stopped the search, so that a request could be answered."""


def judge(
    deltas: Mapping[str, float], history: Sequence[Mapping[str, float]] = (), *, tick_ns: float = TICK_NS
) -> str | None:
    """What disturbed a round, with its numbers: the first of `causes`; None for a clean one."""
    return next(causes(deltas, history, tick_ns=tick_ns), None)


def causes(
    deltas: Mapping[str, float], history: Sequence[Mapping[str, float]] = (), *, tick_ns: float = TICK_NS
) -> Iterator[str]:
    """Everything that a detector has to say about a round, each named before its colon.

    `deltas` are `counters.deltas` over it, what is absent is not judged; `history` are those of earlier
    rounds, for the canary. The process's own quota is its environment: throttling is never a reason, and
    while it throttles, waiting is not another's doing. Nor is `neighbour_ns`, which a neighbour of our own
    ran: what it can have caused is taken off, and the canary is not asked beside it.
    """
    if stopped := deltas.get(STOPPED_NS, 0.0):
        yield f"stopped: for {stopped / 1e9:.1f} s, while the service answered requests"
    wall = deltas.get("wall_ns", 0.0)
    if wall <= 0 or deltas.get("throttled_periods", 0.0) > 0:
        return
    ours = deltas.get("neighbour_ns", 0.0)
    cpus = max(deltas.get("cpus", 1.0), 1.0)
    delay = deltas.get("max_run_delay_ns", 0.0) - ours
    # More threads than free CPUs wait for each other, which is the configuration's own doing.
    free = deltas.get("cpus", float("inf")) - (ours > 0)
    crowded = deltas.get("busy_threads", 0.0) > free
    if not crowded and delay > RUN_DELAY_SHARE * wall and delay > RUN_DELAY_NS:
        yield f"run delay: a thread waited {delay / 1e6:.1f} ms for a CPU ({100 * delay / wall:.1f} %)"
    others = deltas.get("busy_ns", 0.0) - deltas.get("cpu_ns", 0.0) - ours
    # Each CPU's time is read in whole ticks, so each may be off by one.
    if "busy_ns" in deltas and others > OTHERS_SHARE * wall + cpus * tick_ns:
        yield f"others' CPU: {others / 1e6:.0f} ms on our CPUs ({100 * others / wall:.0f} % of the round)"
    steal = deltas.get("steal_ns", 0.0)
    if steal >= STEAL_TICKS_PER_CPU * cpus * tick_ns or steal > max(STEAL_SHARE * wall * cpus, tick_ns):
        yield f"steal: the hypervisor took {steal / 1e6:.0f} ms"
    for kind in ("memory", "io"):
        stalled = deltas.get(f"pressure_{kind}_ns", 0.0)
        if stalled > PRESSURE_SHARE * wall and stalled > RUN_DELAY_NS:
            yield f"{kind} pressure: {stalled / 1e6:.0f} ms stalled"
    if not ours:
        yield from _judge_canary(deltas, history)


def _judge_canary(deltas: Mapping[str, float], history: Sequence[Mapping[str, float]]) -> Iterator[str]:
    for name, limit in (("canary_hash_ns", CANARY_HASH_RATIO), ("canary_memory_ns", CANARY_MEMORY_RATIO)):
        seen = sorted(earlier[name] for earlier in history if name in earlier)
        if name not in deltas or len(seen) < CANARY_HISTORY:
            continue
        ratio = deltas[name] / seen[len(seen) // 10]
        if ratio > limit:
            yield f"canary: {name.split('_')[1]} took {ratio:.2f} times the usual"


def detector(cause: str) -> str:
    """The name of the detector that gave a cause, without its numbers."""
    return cause.partition(":")[0]
