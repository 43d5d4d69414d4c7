"""Which thread counts are worth trying on a machine, whatever the engine."""

from __future__ import annotations

from probes.machine import Machine


def thread_counts(machine: Machine) -> tuple[int, ...]:
    """Thread counts worth trying: all of them up to 8 effective CPUs, else a ladder.

    The ladder grows by about a half a step, and has the physical cores, the fast cores and all CPUs.
    """
    every = machine.effective.cpu_count_ceiling
    if every <= 8:
        return tuple(range(1, every + 1))
    counts = {1, 2, 3, 4, 6, 8, every // 2, every}
    step = 8
    while step < every:
        counts |= {step, step * 3 // 2}
        step *= 2
    counts |= {machine.physical_cores or every}
    if len(machine.core_kinds) > 1:
        counts |= {kind.physical_cores or len(kind.cpus) for kind in machine.core_kinds}
        counts |= {len(kind.cpus) for kind in machine.core_kinds}
    return tuple(sorted(count for count in counts if 1 <= count <= every))
