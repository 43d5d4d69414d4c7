"""Host-wide dimensions: how a worker process waits, where it runs, and in what pages its memory lies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache

from probes.machine import Machine
from profiles.vocabulary import Config, Role, Setting
from tuner.engines.base import Dimension, Engine, Scope
from tuner.errors import UsageError

WAIT_POLICIES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    # libgomp's default spins for milliseconds; this is long enough for the gap between two layers.
    "short_spin": {"GOMP_SPINCOUNT": "20000"},
    "passive": {"OMP_WAIT_POLICY": "passive"},
}
WAIT_POLICY = "wait_policy"
HUGE_PAGES = "huge_pages"
# The C library then asks for huge pages for everything that it maps: weights that are read or repacked, KV
# caches, compute buffers. A mapped model file stays in the page cache's own pages.
_HUGE_PAGES: Mapping[bool, Mapping[str, str]] = {
    False: {},
    True: {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
}
_OLDEST_GLIBC = (2, 35)
_ENVIRONMENTS: Mapping[str, Mapping[Setting, Mapping[str, str]]] = {
    WAIT_POLICY: dict[Setting, Mapping[str, str]](WAIT_POLICIES.items()),
    HUGE_PAGES: dict[Setting, Mapping[str, str]](_HUGE_PAGES.items()),
}

ANYWHERE = "none"
PLACEMENT = "placement"

NAMES = frozenset({*_ENVIRONMENTS, PLACEMENT})
"""The settings that are not the engine's."""

RULES_OF_THUMB: Mapping[str, Setting] = {HUGE_PAGES: True}
"""What is worth trying first, where it is offered: fewer misses of the TLB, at the price of a slower load."""

# The caller's own tuning would be measured as if it were the engine's default.
_CONTROLLED = ("OMP_", "GOMP_", "KMP_", "LIBOMP_", "MKL_", "OPENBLAS_", "GGML_", "ORT_", "GLIBC_TUNABLES")
_ALWAYS = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_OFFLINE": "1"}
"""No network and no telemetry at measuring time."""


def dimensions(engine: Engine, machine: Machine | None = None) -> tuple[Dimension, ...]:
    """What of this applies to an engine on a machine; without one, what applies everywhere."""
    found = []
    if engine.has_openmp:
        found.append(Dimension(WAIT_POLICY, tuple(WAIT_POLICIES), "default", Scope.PROCESS, Role.PLACEMENT))
    placements = tuple(choices(machine)) if machine is not None else ()
    if placements:
        values = (ANYWHERE, *placements)
        found.append(Dimension(PLACEMENT, values, ANYWHERE, Scope.PROCESS, Role.PLACEMENT))
    if machine is not None and _has_huge_pages(machine):
        found.append(Dimension(HUGE_PAGES, (False, True), False, Scope.PROCESS, Role.PLACEMENT))
    return tuple(found)


def _has_huge_pages(machine: Machine) -> bool:
    """Whether asking for huge pages changes anything: the kernel gives them to those who ask, and this C
    library can ask. Under "always" everybody has them, under "never" nobody."""
    return machine.memory.huge_pages.transparent == "madvise" and _glibc_version() >= _OLDEST_GLIBC


@cache
def _glibc_version() -> tuple[int, ...]:
    """(0,) for another C library."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return (0,)
    parts = version.split(".")
    return tuple(int(part) for part in parts) if name == "glibc" and all(map(str.isdigit, parts)) else (0,)


def choices(machine: Machine) -> dict[str, tuple[int, ...]]:
    """The placements that mean something here, with their CPUs, all of them effective ones.

    "cores" has one CPU of each core, where a core has several; "fast" those of the fastest kind of core,
    where there are others; "node0" and so on those of one NUMA node, where there are more.
    """
    usable = machine.effective.cpus
    cores = [[cpu for cpu in core if cpu in usable] for core in machine.topology.cores]
    kinds = [[cpu for cpu in kind.cpus if cpu in usable] for kind in machine.core_kinds]
    nodes = {f"node{node.id}": [cpu for cpu in node.cpus if cpu in usable] for node in machine.cpu_nodes}
    nodes = {name: cpus for name, cpus in nodes.items() if cpus}
    found = {
        "cores": [core[0] for core in cores if core],
        "fast": next((kind for kind in kinds if kind), []),
        **(nodes if len(nodes) > 1 else {}),
    }
    # One that is empty, or has all CPUs, is no choice.
    return {name: tuple(sorted(cpus)) for name, cpus in found.items() if 0 < len(cpus) < len(usable)}


def node(config: Config) -> int | None:
    """The NUMA node that a worker's memory is bound to, that of its CPUs; None for any other placement."""
    value = str(config.get(PLACEMENT) or ANYWHERE)
    return int(value.removeprefix("node")) if value.startswith("node") else None


def violation(config: Config, machine: Machine, described: Iterable[Dimension]) -> str | None:
    """Why a configuration can't be placed: a placement of another machine, or more threads than it has
    CPUs. None when it can."""
    value = config.get(PLACEMENT)
    if value is None or value == ANYWHERE:
        return None
    known = choices(machine)
    if value not in known:
        allowed = ", ".join((ANYWHERE, *known))
        return f"{PLACEMENT}={value} means nothing on this machine: allowed is {allowed}"
    limit = len(known[str(value)])
    for dimension in described:
        count = config.get(dimension.name)
        if dimension.role is Role.THREADS and isinstance(count, int) and count > limit:
            return f"{dimension.name}={count}: allowed is 1 to {limit}, the CPUs of {PLACEMENT}={value}"
    return None


def environment(config: Config, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a worker: `base` (default: the caller's) with threading variables controlled.

    Raises UsageError for an unknown value of one of our settings.
    """
    inherited = os.environ if base is None else base
    found = {name: value for name, value in inherited.items() if not name.startswith(_CONTROLLED)}
    return found | _ALWAYS | variables(config)


def variables(config: Config) -> dict[str, str]:
    """The variables alone that a configuration needs, set before its process starts.

    Raises UsageError for an unknown value of one of our settings.
    """
    found: dict[str, str] = {}
    for setting, values in _ENVIRONMENTS.items():
        value = config.get(setting)
        if value is None:
            continue
        if value not in values:
            allowed = ", ".join(map(str, values)).lower()
            raise UsageError(f"{setting} '{value}' is unknown: allowed are {allowed}")
        found |= values[value]
    return found


def held(environment: Mapping[str, str], huge_pages_mib: float) -> dict[str, Setting]:
    """What a process holds of these settings, by its own environment and the huge pages it got.

    `huge_pages` is absent where they were asked for and none came: too little memory was mapped at once, or
    what is free is in pieces.
    """
    found: dict[str, Setting] = {}
    for setting, values in _ENVIRONMENTS.items():
        names = {name for wanted in values.values() for name in wanted}
        own = {name: environment[name] for name in names if name in environment}
        found.update((setting, value) for value, wanted in values.items() if wanted == own)
    if found.get(HUGE_PAGES) and not huge_pages_mib:
        del found[HUGE_PAGES]
    return found


def affinity(config: Config, machine: Machine) -> tuple[int, ...] | None:
    """The CPUs that a worker is bound to before it imports its engine; None: those it inherits.

    Raises UsageError for a placement that this machine does not have.
    """
    value = config.get(PLACEMENT)
    if value is None or value == ANYWHERE:
        return None
    problem = violation(config, machine, ())
    if problem is not None:
        raise UsageError(problem)
    return choices(machine)[str(value)]
