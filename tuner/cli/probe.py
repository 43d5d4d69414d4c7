"""`cputune probe`: what this machine is, and what this process may use of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson

if TYPE_CHECKING:
    from probes.machine import Machine


def probe(
    root: Annotated[str, typer.Option(help="Read /proc and /sys below this folder instead of /.")] = "/",
    bandwidth: Annotated[
        bool,
        typer.Option("--bandwidth", help="Also measure memory bandwidth and hidden SMT siblings (< 3 s)."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show this machine and what this process may really use of it."""
    from probes.machine import probe as read
    from tuner.errors import UsageError

    if bandwidth and root != "/":
        raise UsageError(f"--bandwidth measures the running machine: it can't be used with --root {root}")
    machine = read(root)
    if bandwidth:
        from probes.bandwidth import measure_bandwidth
        from tuner.home import Home

        machine = machine.with_bandwidth(measure_bandwidth(machine, Home.find().root))
    from tuner.cli.output import dump_json, say

    if as_json:
        dump_json(machine.to_json())
    else:
        say(lines(machine))


def lines(machine: Machine) -> Iterator[str]:
    """The machine on a page of text."""
    yield from (f"{name:<14}{value}" for name, value in facts(machine) if value)
    for advice in machine.advice:
        yield f"{advice.severity}: {advice.message}; {advice.fix}"
    for note in machine.notes:
        yield f"note: {note}"


def facts(machine: Machine) -> Iterator[tuple[str, str]]:
    """Name and value of what is known."""
    effective = machine.effective
    yield "CPU", machine.model_name or f"unknown ({machine.arch})"
    yield (
        "topology",
        f"{_count(machine.sockets, 'socket')}, {_count(machine.physical_cores, 'core')},"
        f" {_count(machine.logical_cpus, 'CPU')}",
    )
    if len(machine.core_kinds) > 1:
        yield "core kinds", ", ".join(f"{len(kind.cpus)} {kind.kind}" for kind in machine.core_kinds)
    quota = f", quota {effective.cpu_quota:g}" if effective.cpu_quota is not None else ""
    limited = "" if effective.limited_by == "none" else f" (limited by {effective.limited_by}{quota})"
    yield "usable", f"{_count(effective.cpu_count, 'CPU')}{limited}, {_gib(effective.memory_bytes)} of memory"
    isa = machine.inference_isa
    yield "ISA", " ".join(name for name in (isa.vector, isa.int8_dot, isa.bf16, isa.fp16, isa.matrix) if name)
    yield (
        "caches",
        ", ".join(
            f"L{cache.level}{'' if cache.type == 'unified' else cache.type[0]} {_size(cache.size_bytes)}"
            + ("" if cache.instances is None else f" x{cache.instances}")
            for cache in machine.caches
        ),
    )
    if len(machine.numa_nodes) > 1:
        yield "NUMA", f"{len(machine.numa_nodes)} nodes"
    if machine.bandwidth_gbps is not None:
        yield "bandwidth", f"{machine.bandwidth_gbps:.1f} GB/s"
    yield "fingerprint", machine.fingerprint


def _count(value: int | None, noun: str) -> str:
    return f"unknown {noun}s" if value is None else f"{value} {noun}{'' if value == 1 else 's'}"


def _gib(value: int | None) -> str:
    return "unknown" if value is None else f"{value / 2**30:.1f} GiB"


def _size(value: int) -> str:
    return f"{value >> 20} MiB" if value >= 1 << 20 and value % (1 << 20) == 0 else f"{value >> 10} KiB"
