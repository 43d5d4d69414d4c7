"""Builds small /proc and /sys trees of machines that don't exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from probes.cpulist import format_cpu_list
from probes.machine import Machine, probe

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
X86_FLAGS = "fpu sse2 lm sse4_2 avx avx2 fma f16c bmi2"


class Tree:
    """A root folder that fills up file by file."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> Tree:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return self

    def remove(self, path: str) -> Tree:
        (self.root / path).unlink()
        return self

    def probe(self) -> Machine:
        return probe(self.root)

    def online(self, cpus: Iterable[int]) -> Tree:
        return self.write(f"{CPU}/online", format_cpu_list(cpus) + "\n")

    def topology(self, cpu: int, **files: object) -> Tree:
        for name, value in files.items():
            self.write(f"{CPU}/cpu{cpu}/topology/{name}", f"{value}\n")
        return self

    def cores(self, cores: Sequence[Sequence[int]], packages: Sequence[Sequence[int]] = ()) -> Tree:
        """Topology folders with sibling lists; all CPUs are one package unless `packages` says otherwise."""
        everything = sorted(cpu for core in cores for cpu in core)
        for number, core in enumerate(cores):
            for cpu in core:
                group = next((cpus for cpus in packages if cpu in cpus), everything)
                self.topology(
                    cpu,
                    physical_package_id=packages.index(group) if packages else 0,
                    core_id=number,
                    thread_siblings_list=format_cpu_list(core),
                    core_siblings_list=format_cpu_list(group),
                )
        return self

    def plain(self, count: int) -> Tree:
        """`count` online CPUs without SMT in one socket, with an x86 cpuinfo."""
        self.online(range(count)).cores([[cpu] for cpu in range(count)])
        return self.x86(range(count))

    def x86(
        self, cpus: Iterable[int], flags: str = X86_FLAGS, name: str = "Example CPU", **more: object
    ) -> Tree:
        extra = "".join(f"{key.replace('_', ' ')}\t: {value}\n" for key, value in more.items())
        blocks = (
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: {name}\n"
            f"{extra}flags\t\t: {flags}\n\n"
            for cpu in cpus
        )
        return self.write("proc/cpuinfo", "".join(blocks))

    def arm(
        self, parts: Mapping[int, int], implementer: int = 0x41, features: str = "fp asimd asimddp"
    ) -> Tree:
        """An AArch64 cpuinfo: CPU -> part number."""
        blocks = (
            f"processor\t: {cpu}\nBogoMIPS\t: 50.00\nFeatures\t: {features}\n"
            f"CPU implementer\t: {implementer:#x}\nCPU architecture: 8\nCPU variant\t: 0x1\n"
            f"CPU part\t: {part:#05x}\nCPU revision\t: 0\n\n"
            for cpu, part in parts.items()
        )
        return self.write("proc/cpuinfo", "".join(blocks))

    def cache(self, cpu: int, index: int, level: int, kind: str, size: str, shared: str | None) -> Tree:
        base = f"{CPU}/cpu{cpu}/cache/index{index}"
        self.write(f"{base}/level", f"{level}\n").write(f"{base}/type", f"{kind}\n").write(
            f"{base}/size", f"{size}\n"
        )
        return self if shared is None else self.write(f"{base}/shared_cpu_list", f"{shared}\n")

    def max_khz(self, speeds: Mapping[int, int]) -> Tree:
        for cpu, khz in speeds.items():
            self.write(f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq", f"{khz}\n")
        return self

    def node(self, number: int, cpus: str, total_kb: int, distance: str = "10") -> Tree:
        base = f"{NODE}/node{number}"
        self.write(f"{base}/cpulist", f"{cpus}\n").write(f"{base}/distance", f"{distance}\n")
        return self.write(f"{base}/meminfo", f"Node {number} MemTotal:       {total_kb} kB\n")

    def memory(self, total_kb: int, available_kb: int) -> Tree:
        return self.write("proc/meminfo", f"MemTotal: {total_kb} kB\nMemAvailable: {available_kb} kB\n")

    def affinity(self, cpus: str) -> Tree:
        return self.write(
            "proc/self/status", f"Name:\tprobe\nCpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\n"
        )

    def cgroup2(self, path: str = "/", point: str = "/sys/fs/cgroup", root: str = "/") -> Tree:
        """Mounts the unified hierarchy at `point` and puts the process into `path`."""
        self.write("proc/self/cgroup", f"0::{path}\n")
        return self.write(
            "proc/self/mountinfo", f"30 20 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup rw\n"
        )

    def cgroup1(self, paths: Mapping[str, str], root: str = "/") -> Tree:
        """Mounts v1 hierarchies, "cpu,cpuacct" -> the process's path, under /sys/fs/cgroup."""
        lines = [f"{number}:{names}:{path}\n" for number, (names, path) in enumerate(paths.items(), start=2)]
        mounts = [
            f"3{number} 20 0:3{number} {root} /sys/fs/cgroup/{names} rw - cgroup cgroup rw,{names}\n"
            for number, names in enumerate(paths)
        ]
        return self.write("proc/self/cgroup", "".join(lines)).write("proc/self/mountinfo", "".join(mounts))
