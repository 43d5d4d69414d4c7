"""How long the commands take that everybody waits for."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.commands import cputune

CPUS = 384


def startup(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """Help and probe, on this machine and on a tree of 384 CPUs."""
    tree = folder / "tree"
    write_tree(tree, CPUS)
    calls: tuple[tuple[str, tuple[str, ...], float], ...] = (
        ("help", ("--help",), 0.3),
        ("probe", ("probe",), 0.3),
        (f"probe of {CPUS} CPUs", ("probe", "--root", str(tree), "--json"), 0.5),
    )
    rows = []
    for what, arguments, limit_s in calls:
        # The first call fills the file system's cache and is not counted.
        ran = [cputune(folder, *arguments) for _ in range(options.repeats + 1)][1:]
        seconds = median([one.seconds for one in ran])
        rows.append(
            {
                "what": what,
                "command": ran[0].command.replace(str(folder), "FOLDER"),
                "seconds": seconds,
                "slowest_s": max(one.seconds for one in ran),
                "limit": f"median <= {limit_s:g} s",
                "kept": seconds <= limit_s and all(one.code == 0 for one in ran),
            }
        )
    return rows


def write_tree(root: Path, cpus: int) -> None:
    """The files of a machine with two sockets and two threads a core, as Linux shows them."""
    half = cpus // 2
    flags = "fpu sse2 lm sse4_2 avx avx2 fma f16c bmi2 avx512f avx512_vnni"
    files = {"sys/devices/system/cpu/online": f"0-{cpus - 1}", "proc/cpuinfo": ""}
    blocks = []
    for cpu in range(cpus):
        core, package = cpu % half, cpu % half // (half // 2)
        siblings = f"{core},{core + half}"
        first = package * (half // 2)
        package_cpus = f"{first}-{first + half // 2 - 1},{first + half}-{first + half + half // 2 - 1}"
        base = f"sys/devices/system/cpu/cpu{cpu}"
        topology = {
            "physical_package_id": package,
            "core_id": core,
            "thread_siblings_list": siblings,
            "core_siblings_list": package_cpus,
        }
        files |= {f"{base}/topology/{name}": str(value) for name, value in topology.items()}
        levels = (
            (1, "Data", "48K", siblings),
            (1, "Instruction", "32K", siblings),
            (2, "Unified", "2048K", siblings),
            (3, "Unified", "107520K", package_cpus),
        )
        for index, (level, kind, size, shared) in enumerate(levels):
            cache = f"{base}/cache/index{index}"
            files |= {f"{cache}/level": str(level), f"{cache}/type": kind, f"{cache}/size": size,
                      f"{cache}/shared_cpu_list": shared}  # fmt: skip
        blocks.append(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Example CPU\nflags\t: {flags}\n"
        )
    files["proc/cpuinfo"] = "\n".join(blocks)
    files["proc/meminfo"] = "MemTotal: 1048576000 kB\nMemAvailable: 1000000000 kB"
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")
