"""Random and damaged trees: never an exception, the invariants hold."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.machine import Machine, probe

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
PER_CPU = (
    "online", "cpu_capacity", "topology/physical_package_id", "topology/core_id", "topology/die_id",
    "topology/thread_siblings_list", "topology/thread_siblings", "topology/core_siblings_list",
    "topology/core_cpus_list", "topology/package_cpus_list", "topology/die_cpus_list",
    "topology/cluster_cpus_list", "cache/index0/level", "cache/index0/type", "cache/index0/size",
    "cache/index0/shared_cpu_list", "cache/index2/level", "cache/index2/type", "cache/index2/size",
    "cache/index2/shared_cpu_map", "cpufreq/cpuinfo_max_freq", "cpufreq/scaling_governor",
    "thermal_throttle/core_throttle_count",
)  # fmt: skip
GLOBAL = (
    "proc/cpuinfo", "proc/meminfo", "proc/stat", "proc/loadavg", "proc/pressure/cpu", "proc/self/status",
    "proc/self/cgroup", "proc/self/cpuset", "proc/self/mountinfo", "proc/mounts", "proc/self/auxv",
    "proc/sys/kernel/arch", "sys/kernel/cpu_byteorder", f"{CPU}/online", f"{CPU}/present",
    "sys/devices/cpu_core/cpus", "sys/devices/cpu_atom/cpus", f"{NODE}/online", f"{NODE}/node0/cpulist",
    f"{NODE}/node0/meminfo", f"{NODE}/node0/distance", f"{NODE}/node5/cpumap", "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/a/cpu.max", "sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/a/memory.current",
    "sys/fs/cgroup/cpuset.cpus.effective", "sys/class/power_supply/BAT0/type", "sys/fs/cgroup/a/cpu.stat",
)  # fmt: skip
PLAUSIBLE = (
    b"0", b"1\n", b"-1", b"0-3", b"2,0,1\n\0", b"3-1", b"0-99999", b"ff", b"0000,00000003", b"48K", b"0K",
    b"2048K", b"Data", b"Unified", b"Instruction", b"", b"\0\0", b"\xff\xfe", b"max 100000",
    b"50000 100000", b"-5 0", b"1 2 3", b"18446744073709551616", b"999999999999999999999999", b"/a\n",
    b"0::/a\n3:cpu,cpuset:/a/../b\n", b"Battery", b"30 1 0:2 / /sys/fs/cgroup rw - cgroup2 c rw",
    b"30 1 0:2 /x /sys/fs/cgroup rw - cgroup c rw,cpu,cpuset,memory", b"none /sys/fs/cgroup cgroup2 rw 0 0",
    b"some avg10=1.00 avg60=0 avg300=0 total=99", b"nr_throttled 5", b"Node 0 MemTotal: 5 kB",
    b"MemTotal: 10 kB\nMemAvailable: 99999 kB\nSwapTotal: 1 kB\nSwapFree: 5 kB",
    b"cpu 1 2 3\ncpu0 1 2 3 4 5 6 7 8\ncpu99999 1", b"Cpus_allowed_list:\t0-1,7", b"Cpus_allowed_list: x",
    b"processor : 0\nphysical id : 0\nsiblings : 4\nflags : avx2 lm\n\nprocessor : 1\nflags : lm\n",
    b"processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0b\n\n"
    b"processor : 3\nCPU implementer : 0xzz\nCPU part :",
    b"processor 5: version = FF, machine = \nvendor_id : IBM/S390", b"processor : 0\nisa : rv64_",
    b"processor : 9999999\ncpu : POWER9\nrevision : 1",
    b"cache0 : level=x type=Data size=K\nvendor_id : IBM/S390",
)  # fmt: skip
CONTENT = st.one_of(st.sampled_from(PLAUSIBLE), st.binary(max_size=40))
PATHS = st.one_of(
    st.sampled_from(GLOBAL),
    st.builds(
        lambda cpu, name: f"{CPU}/cpu{cpu}/{name}", st.sampled_from([0, 1, 2, 3, 7]), st.sampled_from(PER_CPU)
    ),
)


def write(root: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def check(machine: Machine) -> None:
    logical, physical = machine.logical_cpus, machine.physical_cores
    if logical is not None:
        assert physical is not None
        assert 1 <= physical <= logical
        assert machine.threads_per_core is not None
        assert 1 <= machine.threads_per_core <= logical
        assert sorted(cpu for core in machine.topology.cores for cpu in core) == list(machine.topology.online)
        assert set(machine.effective.cpus) <= set(machine.topology.online)
        assert sorted(cpu for kind in machine.core_kinds for cpu in kind.cpus) == list(
            machine.topology.online
        )
    assert machine.sockets is None or 1 <= machine.sockets <= (logical or 0)
    assert 1 <= machine.effective.cpu_count <= max(1, len(machine.effective.cpus))
    assert machine.effective.cpu_count <= machine.effective.cpu_count_ceiling
    assert machine.effective.cpu_quota is None or machine.effective.cpu_quota > 0
    assert all(cache.size_bytes > 0 and 1 <= cache.level <= 9 for cache in machine.caches)
    assert all(cache.instances is None or 1 <= cache.instances <= (logical or 0) for cache in machine.caches)
    sizes = [node.memory_bytes for node in machine.numa_nodes]
    sizes += [machine.memory.total_bytes, machine.memory.available_bytes, machine.effective.memory_bytes]
    sizes += [machine.cgroup.memory_bytes, machine.cgroup.memory_room_bytes, machine.memory.swap_used_bytes]
    assert all(size is None or size >= 0 for size in sizes)
    assert Machine.from_json(json.loads(json.dumps(machine.to_json()))) == machine


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(PATHS, CONTENT, max_size=40))
def test_random_trees(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), files)
        first = probe(folder)
        check(first)
        assert probe(folder) == first


def healthy(cpus: int) -> dict[str, bytes]:
    files = {
        f"{CPU}/online": f"0-{cpus - 1}\n".encode(),
        "proc/meminfo": b"MemTotal: 1000 kB\nMemAvailable: 500 kB\n",
        "proc/self/status": f"Cpus_allowed_list:\t0-{cpus - 1}\n".encode(),
        "proc/self/cgroup": b"0::/a\n",
        "proc/self/mountinfo": b"30 1 0:2 / /sys/fs/cgroup rw - cgroup2 c rw\n",
        "sys/fs/cgroup/a/cpu.max": b"150000 100000\n",
        "proc/cpuinfo": b"".join(
            f"processor : {cpu}\nvendor_id : X\nmodel name : Y\nflags : fpu lm avx2\n\n".encode()
            for cpu in range(cpus)
        ),
    }
    for cpu in range(cpus):
        pair = f"{cpu // 2 * 2}-{min(cpu // 2 * 2 + 1, cpus - 1)}\n".encode()
        base = f"{CPU}/cpu{cpu}"
        files |= {
            f"{base}/topology/thread_siblings_list": pair,
            f"{base}/topology/core_siblings_list": f"0-{cpus - 1}\n".encode(),
            f"{base}/cache/index0/level": b"1\n",
            f"{base}/cache/index0/type": b"Data\n",
            f"{base}/cache/index0/size": b"32K\n",
            f"{base}/cache/index0/shared_cpu_list": pair,
        }
    return files


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 6), st.data())
def test_damaged_trees(cpus: int, data: st.DataObject) -> None:
    files = healthy(cpus)
    for path in data.draw(st.lists(st.sampled_from(sorted(files)), max_size=8, unique=True)):
        damaged = data.draw(st.one_of(st.none(), CONTENT, st.just(files[path][: len(files[path]) // 2])))
        if damaged is None:
            del files[path]
        else:
            files[path] = damaged
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), files)
        check(probe(folder))
