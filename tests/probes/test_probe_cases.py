"""Trouble that people had with finding out what a machine is; each test names its case."""

from __future__ import annotations

import time

import pytest
from trees import CPU, Tree

from probes import fallback
from probes.conditions import change_between, snapshot
from probes.sysfs import Sysfs

GIB = 1 << 30


def test_p01_quota_binds_below_the_affinity_mask(tree: Tree) -> None:
    tree.plain(8).affinity("0-7").cgroup2("/box").write("sys/fs/cgroup/box/cpu.max", "400000 100000\n")
    effective = tree.probe().effective
    assert effective.cpus == tuple(range(8))
    assert (effective.cpu_count, effective.cpu_count_ceiling, effective.limited_by) == (4, 4, "quota")
    assert [advice.id for advice in tree.probe().advice] == ["cpu_quota"]


def test_p01_throttling_is_read_before_and_after(tree: Tree) -> None:
    tree.plain(8).cgroup2("/box")
    stat = "sys/fs/cgroup/box/cpu.stat"
    tree.write(stat, "nr_periods 100\nnr_throttled 10\nthrottled_usec 500000\n")
    before = snapshot(Sysfs(tree.root))
    tree.write(stat, "nr_periods 150\nnr_throttled 45\nthrottled_usec 2500000\n")
    change = change_between(before, snapshot(Sysfs(tree.root)))
    assert (change.throttled_periods, change.throttled_s) == (35, 2.0)
    assert any(advice.id == "cgroup_throttled" for advice in tree.probe().advice)


@pytest.mark.parametrize(
    ("text", "quota", "count", "ceiling"),
    [
        ("765000 100000", 7.65, 7, 8),
        ("50000 100000", 0.5, 1, 1),
        ("150000 100000", 1.5, 1, 2),
        ("max 100000", None, 16, 16),
        ("300000", 3.0, 3, 3),
        ("100000 0", None, 16, 16),
    ],
)
def test_p02_a_fractional_quota_is_floored_and_kept_exactly(
    tree: Tree, text: str, quota: float | None, count: int, ceiling: int
) -> None:
    tree.plain(16).cgroup2("/box").write("sys/fs/cgroup/box/cpu.max", text)
    machine = tree.probe()
    assert machine.cgroup.cpu_quota == machine.effective.cpu_quota == quota
    assert (machine.effective.cpu_count, machine.effective.cpu_count_ceiling) == (count, ceiling)


@pytest.mark.parametrize(("quota_us", "count"), [("765000", 7), ("-1", 16), ("0", 16), ("50000", 1)])
def test_p02_v1_quota(tree: Tree, quota_us: str, count: int) -> None:
    tree.plain(16).cgroup1({"cpu,cpuacct": "/box"})
    folder = "sys/fs/cgroup/cpu,cpuacct/box"
    tree.write(f"{folder}/cpu.cfs_quota_us", quota_us).write(f"{folder}/cpu.cfs_period_us", "100000")
    assert tree.probe().effective.cpu_count == count


def test_p04_the_tightest_ancestor_binds(tree: Tree) -> None:
    tree.plain(16).cgroup2("/pod/leaf").memory(64 << 20, 60 << 20)
    tree.write("sys/fs/cgroup/pod/leaf/cpu.max", "max 100000").write(
        "sys/fs/cgroup/pod/leaf/memory.max", "max"
    )
    tree.write("sys/fs/cgroup/pod/cpu.max", "400000 100000").write("sys/fs/cgroup/pod/memory.max", str(GIB))
    machine = tree.probe()
    assert (machine.effective.cpu_count, machine.cgroup.memory_bytes) == (4, GIB)
    assert machine.effective.memory_bytes == GIB


def test_p05_cpuset_with_holes_and_missing_cache_files(tree: Tree) -> None:
    tree.plain(8).affinity("0-2,5-7")
    for cpu in (0, 1, 2, 5, 6, 7):
        tree.cache(cpu, 0, 1, "Data", "48K", str(cpu)).cache(cpu, 1, 1, "Instruction", "32K", str(cpu))
    machine = tree.probe()
    assert machine.effective.cpus == (0, 1, 2, 5, 6, 7)
    assert [(cache.size_bytes, cache.instances) for cache in machine.caches] == [(49152, 6), (32768, 6)]
    assert "caches unknown for 2 of 8 CPUs" in machine.notes
    assert len(machine.core_kinds) == 1


def test_p06_efficiency_cores_alone_are_equal_cores(tree: Tree) -> None:
    tree.plain(4).write("sys/devices/cpu_atom/cpus", "0-3\n")
    machine = tree.probe()
    assert [(kind.kind, kind.cpus, kind.physical_cores) for kind in machine.core_kinds] == [
        ("efficiency", (0, 1, 2, 3), 4)
    ]
    assert machine.effective.cpu_count == 4


def test_p07_hybrid_without_smt_is_not_halved(tree: Tree) -> None:
    tree.plain(20).write("sys/devices/cpu_core/cpus", "0-7\n").write("sys/devices/cpu_atom/cpus", "8-19\n")
    machine = tree.probe()
    assert [(kind.kind, kind.physical_cores) for kind in machine.core_kinds] == [
        ("performance", 8),
        ("efficiency", 12),
    ]
    assert (machine.threads_per_core, machine.physical_cores, machine.effective.cpu_count) == (1, 20, 20)


def test_p09_core_numbers_restart_in_each_socket(tree: Tree) -> None:
    tree.online(range(4))
    for cpu in range(4):
        tree.topology(cpu, physical_package_id=cpu // 2, core_id=cpu % 2)
    machine = tree.probe()
    assert (machine.sockets, machine.physical_cores, machine.threads_per_core) == (2, 4, 1)


def _cpuinfo(*blocks: dict[str, object]) -> str:
    return "\n".join("".join(f"{key}\t: {value}\n" for key, value in block.items()) for block in blocks)


def test_p10_each_virtual_cpu_a_socket(tree: Tree) -> None:
    blocks = [
        {
            "processor": n,
            "vendor_id": "GenuineIntel",
            "physical id": n,
            "siblings": 1,
            "core id": 0,
            "flags": "fpu lm",
        }
        for n in range(12)
    ]
    machine = tree.write("proc/cpuinfo", _cpuinfo(*blocks)).probe()
    assert (machine.sockets, machine.physical_cores, machine.logical_cpus) == (12, 12, 12)


@pytest.mark.parametrize("count", [8, 32])
def test_p10_all_virtual_cpus_one_core(tree: Tree, count: int) -> None:
    blocks = [
        {"processor": n, "vendor_id": "GenuineIntel", "physical id": 0, "core id": 0, "flags": "fpu lm"}
        for n in range(count)
    ]
    machine = tree.write("proc/cpuinfo", _cpuinfo(*blocks)).probe()
    assert (machine.physical_cores, machine.logical_cpus, machine.threads_per_core) == (count, count, 1)
    assert machine.topology.is_low_confidence
    assert any("low confidence" in note for note in machine.notes)


def test_p10_no_topology_fields_at_all(tree: Tree) -> None:
    blocks = [{"processor": n, "flags": "fpu lm sse2"} for n in range(6)]
    machine = tree.write("proc/cpuinfo", _cpuinfo(*blocks)).probe()
    assert (machine.physical_cores, machine.logical_cpus, machine.sockets) == (6, 6, None)
    assert machine.topology.is_low_confidence


def test_p10_absurd_core_numbers_never_exceed_the_cpus(tree: Tree) -> None:
    tree.online(range(4))
    for cpu in range(4):
        tree.topology(cpu, physical_package_id=65535, core_id=65535 - cpu)
    machine = tree.probe()
    assert (machine.sockets, machine.physical_cores, machine.logical_cpus) == (1, 4, 4)


@pytest.mark.parametrize("online", ["0-3", "1-3"])
def test_p11_offline_cpus_have_no_topology(tree: Tree, online: str) -> None:
    tree.cores([[0], [1], [2], [3]]).write(f"{CPU}/offline", "4-7").write(f"{CPU}/online", online)
    for cpu in range(1, 8):
        tree.write(f"{CPU}/cpu{cpu}/online", "1\n" if cpu < 4 else "0\n")
    machine = tree.probe()
    expected = {"0-3": (0, 1, 2, 3), "1-3": (1, 2, 3)}[online]
    assert machine.topology.online == expected
    assert machine.physical_cores == machine.logical_cpus == len(expected)
    assert len(machine.notes) < 6


def test_p11_without_the_online_list_cpu0_counts_as_online(tree: Tree) -> None:
    tree.cores([[0], [1], [2], [3]])
    for cpu in range(1, 8):
        tree.write(f"{CPU}/cpu{cpu}/online", "1\n" if cpu < 4 else "0\n")
    assert tree.probe().topology.online == (0, 1, 2, 3)


def test_p12_a_node_with_memory_only_is_kept(tree: Tree) -> None:
    tree.plain(4).node(0, "0-3", 8 << 20, "10 17").node(1, "", 3145728, "17 10")
    machine = tree.probe()
    assert [(node.id, node.cpus, node.memory_bytes) for node in machine.numa_nodes] == [
        (0, (0, 1, 2, 3), 8 * GIB),
        (1, (), 3072 << 20),
    ]
    assert [node.id for node in machine.cpu_nodes] == [0]


def test_p14_instruction_sets_come_from_the_kernel_not_from_the_name(tree: Tree) -> None:
    tree.plain(2).x86(range(2), flags="fpu lm sse2 sse4_2", name="Xeon Platinum with AVX-512 and AMX")
    machine = tree.probe()
    assert machine.features == ("fpu", "lm", "sse2", "sse4_2")
    assert (machine.inference_isa.vector, machine.inference_isa.int8_dot, machine.inference_isa.matrix) == (
        "sse4_2",
        None,
        None,
    )


def test_p15_two_lines_of_cpuinfo_are_enough(tree: Tree) -> None:
    machine = tree.write("proc/cpuinfo", "processor : 0\nflags : fpu lm avx2\n").probe()
    assert machine.features == ("avx2", "fpu", "lm")
    assert (machine.logical_cpus, machine.effective.cpu_count, machine.model_name) == (None, 1, None)


def test_p15_slow_libraries_are_asked_only_where_proc_is_silent(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "_ask_cpuinfo", lambda _: pytest.fail("asked the running machine"))
    monkeypatch.setattr(fallback, "_ask_psutil", lambda: pytest.fail("asked the running machine"))
    assert tree.probe().logical_cpus is None
    assert tree.plain(2).probe().logical_cpus == 2


def test_p15_a_slow_library_is_given_up_at_the_deadline() -> None:
    begin = time.perf_counter()
    assert fallback.within(0.05, lambda: time.sleep(30)) is None
    assert time.perf_counter() - begin < 10


def test_p16_the_memory_budget_is_the_container_s(tree: Tree) -> None:
    tree.plain(4).memory(64 << 20, 60 << 20).cgroup2("/box")
    tree.write("sys/fs/cgroup/box/memory.max", str(4 * GIB)).write(
        "sys/fs/cgroup/box/memory.current", str(GIB)
    )
    machine = tree.probe()
    assert (machine.cgroup.memory_bytes, machine.effective.memory_bytes) == (4 * GIB, 3 * GIB)


def test_p16_file_cache_counts_as_room(tree: Tree) -> None:
    tree.plain(4).memory(64 << 20, 60 << 20).cgroup2("/box")
    tree.write("sys/fs/cgroup/box/memory.max", str(4 * GIB)).write(
        "sys/fs/cgroup/box/memory.current", str(3 * GIB)
    )
    tree.write("sys/fs/cgroup/box/memory.stat", f"anon 5\ninactive_file {2 * GIB}\n")
    assert tree.probe().effective.memory_bytes == 3 * GIB


def test_p18_the_bound_for_threads_is_known(tree: Tree) -> None:
    effective = tree.plain(2).probe().effective
    assert (effective.cpu_count, effective.cpu_count_ceiling) == (2, 2)
