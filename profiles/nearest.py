"""How far apart two machines or two workloads are, with the reasons.

The distance of two machines is the sum of the costs below, 0 for machines that are alike in all of them.
It is symmetric. "A doubling" is |log2(there / here)|, so that 4 to 8 CPUs are as far apart as 32 to 64.

| feature | cost | why |
|---|---|---|
| architecture | 8 | other kernels altogether: beyond `FARTHEST` alone |
| matrix unit, int8 dot product | 1 each | decide which weights multiply fast, and so the variant |
| vector instructions | 0.5 | decide how far decode is from the memory's bound |
| bf16, fp16 | 0.25 each | matter to float variants only |
| CPUs that may be used | 0.5 a doubling | threads are re-mapped, but the best share of the CPUs moves |
| a CPU quota on one side only | 0.5 | spinning threads are throttled |
| CPUs per core | 0.25 a doubling | whether siblings help |
| several kinds of core on one side only | 0.5 | the slowest thread sets the pace |
| NUMA nodes | 0.5 a doubling | placement |
| L2 of a core, all L3 | 0.25 a doubling, 0.75 at most | batch sizes; how much of a small model is cached |
| memory | 0.25 a doubling, 0.75 at most | which variants fit |
| memory bandwidth | 0.5 a doubling | bounds decode; only where it was measured on both |
| vendor, or only the model | 0.5, 0.25 | what the features above do not tell |

Of two workloads: 0.25 a doubling of the prompt and of the answer, 1 a doubling of the streams, 0.5 for
another objective. The weights are judgement, not a fit: they order what is known, and are shown with their
reasons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probes.caches import total_bytes
from probes.fingerprint import memory_class
from probes.machine import Machine
from profiles.vocabulary import Workload

FARTHEST = 5.0
"""A profile from farther away says less than an engine's own default."""
NEAR = 1.0
"""Up to here what carries over is likely to be good."""
UNKNOWN = 0.5
"""What a feature costs that is told of one machine only."""
MOST_BY_SIZE = 0.75
"""Beyond three doublings a cache or a memory says nothing new."""


@dataclass(frozen=True)
class Difference:
    """One feature in which two things differ; `text` is a line for people."""

    feature: str
    cost: float
    text: str


@dataclass(frozen=True)
class Distance:
    """The sum of the costs of all `differences`, the dearest first; `unknown` could not be compared."""

    value: float
    differences: tuple[Difference, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """A line for each difference."""
        return tuple(difference.text for difference in self.differences)

    def __add__(self, other: Distance) -> Distance:
        """Both together."""
        return _total([*self.differences, *other.differences], (*self.unknown, *other.unknown))


@dataclass(frozen=True)
class Cpus:
    """What of a machine's CPUs may be used: how many run at once, and on how many cores (None: not known)."""

    usable: int
    cores: int | None = None

    @classmethod
    def of(cls, machine: Machine) -> Cpus:
        """Those of a machine; a quota may leave fewer than the cores."""
        usable = machine.effective.cpu_count
        allowed = frozenset(machine.effective.cpus)
        listed = sum(1 for core in machine.topology.cores if allowed.intersection(core))
        cores = listed or machine.physical_cores
        return cls(usable, None if cores is None else min(cores, usable))


def between_machines(there: Machine, here: Machine) -> Distance:
    """The distance of two machines, by the table above."""
    if there.fingerprint and there.fingerprint == here.fingerprint:
        return Distance(0.0)
    found: list[Difference] = []
    unknown: list[str] = []
    if there.arch != here.arch and there.arch and here.arch:
        found.append(Difference("architecture", 8.0, f"architecture {there.arch} there, {here.arch} here"))
    found += _instruction_sets(there, here)
    ours, theirs = Cpus.of(here), Cpus.of(there)
    for feature, cost, one, other in (
        ("CPUs", 0.5, theirs.usable, ours.usable),
        ("CPUs per core", 0.25, _per_core(theirs), _per_core(ours)),
        ("NUMA nodes", 0.5, len(there.cpu_nodes) or 1, len(here.cpu_nodes) or 1),
    ):
        found += _doublings(feature, cost, one, other)
    for feature, one, other, unit in (
        ("L2 of a core", _mib(there, 2, theirs), _mib(here, 2, ours), " MiB"),
        ("L3", _mib(there, 3), _mib(here, 3), " MiB"),
        ("memory", _memory_gib(there), _memory_gib(here), " GiB"),
    ):
        found += _doublings(feature, 0.25, one, other, unit, most=MOST_BY_SIZE)
    if there.bandwidth_gbps is None or here.bandwidth_gbps is None:
        unknown.append("memory bandwidth: not measured on both (cputune probe --bandwidth)")
    else:
        found += _doublings("memory bandwidth", 0.5, there.bandwidth_gbps, here.bandwidth_gbps, " GB/s")
    for feature, one_side in (
        ("a CPU quota", lambda m: m.effective.limited_by == "quota"),
        ("several kinds of core", lambda m: len(m.core_kinds) > 1),
    ):
        if one_side(there) != one_side(here):
            found.append(Difference(feature, 0.5, f"{feature} {'there' if one_side(there) else 'here'} only"))
    if there.model_name != here.model_name:
        cost = 0.25 if there.vendor == here.vendor else 0.5
        names = [m.model_name or "unknown" for m in (there, here)]
        found.append(Difference("CPU model", cost, f"CPU {names[0]} there, {names[1]} here"))
    return _total(found, tuple(unknown))


def between_workloads(there: Workload, here: Workload) -> Distance:
    """The distance of two workloads."""
    found = [
        *_doublings("prompt", 0.25, there.prompt_tokens, here.prompt_tokens, " tokens"),
        *_doublings("answer", 0.25, there.output_tokens, here.output_tokens, " tokens"),
        *_doublings("streams", 1.0, there.streams, here.streams),
    ]
    if there.objective != here.objective:
        text = f"best for {there.objective} there, for {here.objective} here"
        found.append(Difference("objective", 0.5, text))
    return _total(found)


def _instruction_sets(there: Machine, here: Machine) -> Iterator[Difference]:
    if bool(there.features) != bool(here.features):
        text = f"instruction sets are known {'there' if there.features else 'here'} only"
        yield Difference("instruction sets", UNKNOWN, text)
        return
    for feature, name, cost in (
        ("matrix unit", "matrix", 1.0),
        ("int8 dot product", "int8_dot", 1.0),
        ("vector instructions", "vector", 0.5),
        ("bf16", "bf16", 0.25),
        ("fp16", "fp16", 0.25),
    ):
        one, other = getattr(there.inference_isa, name), getattr(here.inference_isa, name)
        if one != other:
            yield Difference(feature, cost, f"{feature}: {one or 'none'} there, {other or 'none'} here")


def _doublings(
    feature: str,
    cost: float,
    there: float | None,
    here: float | None,
    unit: str = "",
    most: float = math.inf,
) -> Iterator[Difference]:
    if not there and not here:
        return
    shown = [f"{round(value, 1):g}{unit}" if value else "unknown" for value in (there, here)]
    far = min(most, abs(math.log2(there / here)) * cost) if there and here else UNKNOWN
    if far > 0:
        yield Difference(feature, far, f"{feature}: {shown[0]} there, {shown[1]} here")


def _total(differences: Iterable[Difference], unknown: tuple[str, ...] = ()) -> Distance:
    dearest_first = sorted(differences, key=lambda difference: -difference.cost)
    return Distance(round(sum(d.cost for d in dearest_first), 3), tuple(dearest_first), unknown)


def _per_core(cpus: Cpus) -> float | None:
    return None if not cpus.cores else cpus.usable / cpus.cores


def _mib(machine: Machine, level: int, cpus: Cpus | None = None) -> float | None:
    """All caches of a level; with `cpus`, the share of a core of the whole machine."""
    size = total_bytes(machine.caches, level)
    if not size:
        return None
    return size / 2**20 / (1 if cpus is None else machine.physical_cores or cpus.cores or cpus.usable)


def _memory_gib(machine: Machine) -> float | None:
    sizes = (machine.memory.total_bytes, machine.cgroup.memory_bytes)
    return memory_class(min((size for size in sizes if size), default=None)) or None
