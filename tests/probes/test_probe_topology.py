"""Sockets, cores, kinds, caches, nodes of machines with one trap each."""

from __future__ import annotations

import pytest
from trees import CPU, NODE, Tree

GIB = 1 << 30


def test_smt_siblings_half_a_machine_apart(tree: Tree) -> None:
    tree.online(range(8)).cores([[cpu, cpu + 4] for cpu in range(4)], packages=[[0, 1, 4, 5], [2, 3, 6, 7]])
    machine = tree.probe()
    assert (machine.sockets, machine.physical_cores, machine.logical_cpus, machine.threads_per_core) == (
        2,
        4,
        8,
        2,
    )
    assert machine.topology.cores[0] == (0, 4)
    assert machine.topology.packages == ((0, 1, 4, 5), (2, 3, 6, 7))


def test_masks_are_read_where_there_are_no_lists(tree: Tree) -> None:
    tree.online(range(40))
    for cpu in range(40):
        mask = 0b11 << (cpu // 2 * 2)
        text = f"{mask >> 32:08x},{mask & 0xFFFFFFFF:08x}"
        tree.topology(cpu, thread_siblings=text, core_siblings="000000ff,ffffffff")
    machine = tree.probe()
    assert (machine.sockets, machine.physical_cores, machine.threads_per_core) == (1, 20, 2)


@pytest.mark.parametrize("ids", [(36, 8442), (0, 1)])
def test_arm_server_packages_are_sockets(tree: Tree, ids: tuple[int, int]) -> None:
    tree.online(range(8)).arm(dict.fromkeys(range(8), 0xD0C))
    for cpu in range(8):
        low = cpu // 4 * 4
        tree.topology(
            cpu,
            physical_package_id=ids[cpu // 4],
            thread_siblings_list=cpu,
            core_siblings_list=f"{low}-{low + 3}",
        )
    tree.node(0, "0-3", 1 << 20).node(1, "4-7", 1 << 20)
    assert tree.probe().sockets == 2


def test_phone_clusters_numbered_as_packages_are_one_socket(tree: Tree) -> None:
    tree.online(range(8)).arm({cpu: 0xD05 if cpu < 4 else 0xD0B for cpu in range(8)})
    for cpu in range(8):
        low = cpu // 4 * 4
        tree.topology(
            cpu,
            physical_package_id=cpu // 4,
            core_id=cpu % 4,
            thread_siblings_list=cpu,
            core_siblings_list=f"{low}-{low + 3}",
        )
    machine = tree.probe()
    assert (machine.sockets, machine.physical_cores) == (1, 8)
    assert [(kind.kind, kind.cpus) for kind in machine.core_kinds] == [
        ("Cortex-A76", (4, 5, 6, 7)),
        ("Cortex-A55", (0, 1, 2, 3)),
    ]


def test_missing_package_ids_leave_the_sibling_sets(tree: Tree) -> None:
    tree.online([1, 2, 3, 5])
    for cpu, group in ((1, "0-2"), (2, "0-2"), (3, "3-5"), (5, "3-5")):
        tree.topology(
            cpu, physical_package_id=-1, core_id=1, thread_siblings_list=cpu, core_siblings_list=group
        )
    machine = tree.probe()
    assert (machine.sockets, machine.physical_cores, machine.logical_cpus) == (2, 4, 4)


def test_more_than_1024_cpus(tree: Tree) -> None:
    tree.online(range(1280)).write("proc/cpuinfo", "")
    for cpu in range(1280):
        core = cpu % 640
        tree.topology(cpu, thread_siblings_list=f"{core},{core + 640}", core_siblings_list="0-1279")
    machine = tree.probe()
    assert (machine.logical_cpus, machine.physical_cores, machine.sockets) == (1280, 640, 1)
    assert machine.effective.cpu_count == 1280


def test_cpuinfo_lists_more_than_is_online(tree: Tree) -> None:
    tree.online(range(2)).cores([[0], [1]]).x86(range(4))
    assert tree.probe().logical_cpus == 2


def test_dies_and_clusters_are_counted(tree: Tree) -> None:
    tree.online(range(8))
    for cpu in range(8):
        tree.topology(
            cpu,
            core_cpus_list=cpu,
            package_cpus_list="0-7",
            die_id=cpu // 4,
            die_cpus_list=f"{cpu // 4 * 4}-{cpu // 4 * 4 + 3}",
            cluster_cpus_list=f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}",
        )
    machine = tree.probe()
    assert (machine.sockets, machine.topology.dies, machine.topology.clusters) == (1, 2, 4)


def test_proc_stat_lists_the_online_cpus(tree: Tree) -> None:
    tree.write("proc/stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\ncpu3 1 2 3 4\nintr 5\n")
    assert tree.probe().topology.online == (0, 3)


def test_present_cpus_or_the_nodes_stand_in_for_the_online_list(tree: Tree) -> None:
    tree.node(0, "0-1", 1 << 20).node(1, "2,4", 1 << 20)
    assert tree.probe().topology.online == (0, 1, 2, 4)
    assert tree.write(f"{CPU}/present", "0-5\n").probe().topology.online == (0, 1, 2, 3, 4, 5)


def test_an_excerpt_of_cpuinfo_tells_no_counts(tree: Tree) -> None:
    tree.x86([2], physical_id=0, siblings=112, core_id=2, cpu_cores=56)
    machine = tree.probe()
    assert (
        machine.logical_cpus is machine.physical_cores is machine.sockets is machine.threads_per_core is None
    )
    assert (machine.effective.cpus, machine.effective.cpu_count, machine.effective.limited_by) == (
        (),
        1,
        "unknown",
    )
    assert machine.core_kinds == machine.caches == ()
    assert any("counts unknown" in note for note in machine.notes)


def test_a_single_cpu_that_says_so_is_complete(tree: Tree) -> None:
    assert tree.x86([0], physical_id=0, siblings=1, core_id=0, cpu_cores=1).probe().logical_cpus == 1


def test_one_kind_of_core_is_one_kind_whatever_favoured_cores_reach(tree: Tree) -> None:
    tree.plain(6).max_khz(
        {0: 5_000_000, 1: 5_000_000, 2: 5_700_000, 3: 5_700_000, 4: 5_300_000, 5: 5_000_000}
    )
    kinds = tree.probe().core_kinds
    assert [(kind.kind, kind.cpus, kind.max_mhz) for kind in kinds] == [
        ("uniform", (0, 1, 2, 3, 4, 5), 5700.0)
    ]


def test_compact_cores_are_a_kind_by_their_frequency(tree: Tree) -> None:
    tree.plain(6).max_khz({cpu: 5_100_000 if cpu < 2 else 3_300_000 for cpu in range(6)})
    assert [(kind.kind, kind.cpus) for kind in tree.probe().core_kinds] == [
        ("performance", (0, 1)),
        ("efficiency", (2, 3, 4, 5)),
    ]


def test_low_power_efficiency_cores_part_from_the_other_atoms(tree: Tree) -> None:
    tree.plain(8).write("sys/devices/cpu_core/cpus", "0-1").write("sys/devices/cpu_atom/cpus", "2-7")
    tree.max_khz({cpu: 4_800_000 if cpu < 2 else 3_800_000 if cpu < 6 else 2_500_000 for cpu in range(8)})
    assert [(kind.kind, kind.cpus) for kind in tree.probe().core_kinds] == [
        ("performance", (0, 1)),
        ("efficiency", (2, 3, 4, 5)),
        ("low-power-efficiency", (6, 7)),
    ]


def test_first_level_caches_tell_kinds_where_the_kernel_does_not(tree: Tree) -> None:
    tree.plain(4).max_khz({0: 4_000_000, 1: 4_000_000, 2: 3_000_000, 3: 3_000_000})
    for cpu in range(4):
        tree.cache(cpu, 0, 1, "Data", "48K" if cpu < 2 else "32K", str(cpu))
        tree.cache(cpu, 1, 1, "Instruction", "32K" if cpu < 2 else "64K", str(cpu))
    assert [kind.cpus for kind in tree.probe().core_kinds] == [(0, 1), (2, 3)]


def test_same_part_at_another_capacity_is_another_kind(tree: Tree) -> None:
    tree.online(range(6)).cores([[cpu] for cpu in range(6)]).arm(dict.fromkeys(range(6), 0xD03))
    for cpu, capacity in enumerate((350, 350, 350, 350, 1024, 1000)):
        tree.write(f"{CPU}/cpu{cpu}/cpu_capacity", f"{capacity}\n")
    assert [kind.cpus for kind in tree.probe().core_kinds] == [(4, 5), (0, 1, 2, 3)]


def test_cache_sharing_sizes_and_instances(tree: Tree) -> None:
    tree.plain(4)
    for cpu in range(4):
        pair = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        tree.cache(cpu, 0, 1, "Data", "16K", str(cpu)).cache(cpu, 1, 1, "Instruction", "64K", pair)
        tree.cache(cpu, 2, 2, "Unified", "1536K", pair).cache(cpu, 3, 3, "Unified", "491520K", "0-3")
    found = [
        (cache.level, cache.type, cache.size_bytes, cache.instances, cache.cpus_per_instance)
        for cache in tree.probe().caches
    ]
    assert found == [
        (1, "data", 16384, 4, 1),
        (1, "instruction", 65536, 2, 2),
        (2, "unified", 1536 << 10, 2, 2),
        (3, "unified", 480 << 20, 1, 4),
    ]


def test_caches_of_offline_cpus_do_not_count(tree: Tree) -> None:
    tree.online([1, 2]).cores([[1], [2]])
    for cpu in range(4):
        tree.cache(cpu, 0, 2, "Unified", "1M", str(cpu)).cache(cpu, 1, 3, "Unified", "8M", "0-3")
    assert [(cache.level, cache.instances) for cache in tree.probe().caches] == [(2, 2), (3, 1)]


def test_a_cache_without_size_is_unknown_without_sharing_uncounted(tree: Tree) -> None:
    tree.plain(2)
    for cpu in range(2):
        tree.write(f"{CPU}/cpu{cpu}/cache/index0/level", "1").write(
            f"{CPU}/cpu{cpu}/cache/index0/type", "Data"
        )
    assert tree.probe().caches == ()
    for cpu in range(2):
        tree.cache(cpu, 1, 2, "Unified", "2M", None)
    assert [(cache.size_bytes, cache.instances) for cache in tree.probe().caches] == [(2 << 20, None)]


def test_nodes_sparse_interleaved_masked_and_with_offline_cpus(tree: Tree) -> None:
    tree.online([0, 1, 2, 3, 5]).cores([[0], [1], [2], [3], [5]])
    tree.node(0, "0,2,4", 4 << 20, "10 21").node(3, "", 2 << 20, "21 10")
    tree.write(f"{NODE}/node3/cpulist", "").write(f"{NODE}/node3/cpumap", "00000000,0000002a\n")
    tree.write(f"{NODE}/online", "0,3\n").write(f"{NODE}/node7/cpulist", "9\n")
    nodes = tree.probe().numa_nodes
    assert [(node.id, node.cpus, node.memory_bytes, node.distances) for node in nodes] == [
        (0, (0, 2), 4 * GIB, (10, 21)),
        (3, (1, 3, 5), 2 * GIB, (21, 10)),
    ]


def test_a_node_without_meminfo_has_unknown_memory_and_one_without_memory_none(tree: Tree) -> None:
    tree.plain(2).node(0, "0", 0).write(f"{NODE}/node1/cpulist", "1\n")
    assert [node.memory_bytes for node in tree.probe().numa_nodes] == [0, None]


def test_nul_bytes_after_the_newline(tree: Tree) -> None:
    tree.write(f"{CPU}/online", "0-1\n\0\0")
    for cpu in range(2):
        tree.write(f"{CPU}/cpu{cpu}/topology/thread_siblings_list", "0-1\n\0")
    machine = tree.probe()
    assert (machine.logical_cpus, machine.physical_cores, machine.threads_per_core) == (2, 1, 2)


def test_each_set_is_read_once_not_once_a_cpu(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    from probes.sysfs import Sysfs

    count = 256
    tree.online(range(count)).x86(range(count)).cores([[cpu, cpu + 128] for cpu in range(128)])
    for cpu in range(count):
        core = cpu % 128
        tree.cache(cpu, 0, 1, "Data", "32K", f"{core},{core + 128}").cache(
            cpu, 1, 3, "Unified", "256M", "0-255"
        )
    opened: list[str] = []
    read = Sysfs.raw
    monkeypatch.setattr(Sysfs, "raw", lambda self, path: opened.append(path) or read(self, path))
    machine = tree.probe()
    assert (machine.physical_cores, machine.caches[0].instances, machine.caches[1].instances) == (128, 128, 1)
    assert len(opened) < 8 * count
