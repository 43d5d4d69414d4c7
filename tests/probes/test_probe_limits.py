"""Cgroups of every layout, the affinity mask, memory, which of them binds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from trees import Tree

from probes.cgroup import read_cgroup, read_throttling
from probes.sysfs import Sysfs

GIB = 1 << 30
PROJECT = Path(__file__).resolve().parents[2]


def test_no_limits_at_all(tree: Tree) -> None:
    machine = tree.plain(4).probe()
    assert machine.cgroup.to_json() == {
        "cpuset_cpus": None,
        "cpuset_mems": None,
        "cpu_quota": None,
        "memory_bytes": None,
        "memory_room_bytes": None,
    }
    assert (machine.effective.cpus, machine.effective.limited_by) == ((0, 1, 2, 3), "none")


def test_unusual_mount_point_with_the_path_in_the_cpuset_file(tree: Tree) -> None:
    tree.plain(8).write("proc/self/cpuset", "/job/step\n")
    tree.write("proc/mounts", "none /sys sysfs rw 0 0\nnone /my\\040groups/all cgroup2 rw 0 0\n")
    tree.write("my groups/all/job/step/cpuset.cpus.effective", "2-4\n")
    machine = tree.probe()
    assert machine.cgroup.cpuset_cpus == machine.effective.cpus == (2, 3, 4)
    assert (machine.effective.cpu_count, machine.effective.limited_by) == (3, "cpuset")


def test_a_container_sees_its_group_at_the_mount_point(tree: Tree) -> None:
    """Without a cgroup namespace the path names the host's group and the mount's root does too."""
    tree.plain(8).cgroup1({"cpu,cpuacct": "/docker/abc", "memory": "/docker/abc"}, root="/docker/abc")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", str(2 * GIB))
    tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", str(GIB))
    machine = tree.memory(32 << 20, 30 << 20).probe()
    assert (machine.cgroup.cpu_quota, machine.effective.cpu_count) == (2.5, 2)
    assert (machine.cgroup.memory_bytes, machine.effective.memory_bytes) == (2 * GIB, GIB)


def test_a_group_below_the_mount_root(tree: Tree) -> None:
    tree.plain(8).cgroup2("/docker/abc/inner", root="/docker/abc")
    tree.write("sys/fs/cgroup/inner/cpu.max", "200000 100000").write("sys/fs/cgroup/cpu.max", "300000 100000")
    assert tree.probe().cgroup.cpu_quota == 2.0


@pytest.mark.parametrize("path", ["/elsewhere", "/../sibling", "/docker/abcdef"])
def test_a_path_outside_of_the_mount_leaves_the_mount_point(tree: Tree, path: str) -> None:
    tree.plain(8).cgroup2(path, root="/docker/abc").write("sys/fs/cgroup/cpu.max", "300000 100000")
    assert tree.probe().cgroup.cpu_quota == 3.0


def test_hybrid_controllers_live_in_v1_and_the_process_in_both(tree: Tree) -> None:
    tree.plain(8)
    tree.write("proc/self/cgroup", "5:cpuset:/a\n4:memory:/a/b\n1:name=systemd:/x\n0::/x\n")
    mounts = (
        "31 20 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "32 20 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "33 20 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    tree.write("proc/self/mountinfo", mounts)
    tree.write("sys/fs/cgroup/cpuset/a/cpuset.cpus", "0-5").write(
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096"
    )
    tree.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712")
    found = read_cgroup(Sysfs(tree.root))
    assert (found.cpuset_cpus, found.memory_bytes) == ((0, 1, 2, 3, 4, 5), 4096)


def test_v1_tells_ancestors_limits_that_the_namespace_hides(tree: Tree) -> None:
    tree.plain(2).cgroup1({"memory": "/"})
    tree.write("sys/fs/cgroup/memory/memory.stat", f"cache 1\nhierarchical_memory_limit {GIB}\n")
    assert tree.probe().cgroup.memory_bytes == GIB


def test_the_legacy_cpuset_file_system_has_no_prefix(tree: Tree) -> None:
    tree.plain(8).write("proc/self/cpuset", "/set1\n").write(
        "proc/mounts", "none /dev/cpuset cpuset rw 0 0\n"
    )
    tree.write("dev/cpuset/set1/cpus", "4-5").write("dev/cpuset/set1/mems", "0")
    machine = tree.probe()
    assert (machine.cgroup.cpuset_cpus, machine.cgroup.cpuset_mems) == ((4, 5), (0,))


def test_without_a_mount_table_the_usual_places_are_tried(tree: Tree) -> None:
    tree.plain(8).write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000")
    assert tree.probe().effective.cpu_count == 4


def test_the_nearest_group_with_a_cpuset_counts_and_offline_cpus_do_not(tree: Tree) -> None:
    tree.plain(4).cgroup2("/a/b").write("sys/fs/cgroup/a/b/cpuset.cpus.effective", "\n")
    tree.write("sys/fs/cgroup/a/cpuset.cpus", "2-9")
    assert tree.probe().cgroup.cpuset_cpus == (2, 3)


def test_memory_high_slows_before_max_kills(tree: Tree) -> None:
    tree.plain(2).cgroup2("/a").write("sys/fs/cgroup/a/memory.max", str(4 * GIB))
    tree.write("sys/fs/cgroup/a/memory.high", str(3 * GIB))
    assert tree.probe().cgroup.memory_bytes == 3 * GIB


def test_a_group_over_its_limit_has_no_room_not_less_than_none(tree: Tree) -> None:
    tree.plain(2).memory(1 << 20, 1 << 20).cgroup2("/a")
    tree.write("sys/fs/cgroup/a/memory.max", "1000").write("sys/fs/cgroup/a/memory.current", "5000")
    assert tree.probe().effective.memory_bytes == 0


def test_affinity_and_quota_together(tree: Tree) -> None:
    tree.plain(16).affinity("4-7").cgroup2("/a").write("sys/fs/cgroup/a/cpu.max", "250000 100000")
    effective = tree.probe().effective
    assert (effective.cpus, effective.cpu_count, effective.limited_by) == ((4, 5, 6, 7), 2, "quota")
    effective = tree.affinity("4").probe().effective
    assert (effective.cpus, effective.cpu_count, effective.limited_by) == ((4,), 1, "affinity")


def test_a_mask_without_online_cpus_is_ignored_with_a_note(tree: Tree) -> None:
    machine = tree.plain(4).affinity("8-15").probe()
    assert machine.effective.cpus == (0, 1, 2, 3)
    assert "the affinity mask holds no online CPU; ignored" in machine.notes


def test_old_kernels_without_memavailable(tree: Tree) -> None:
    tree.write(
        "proc/meminfo",
        "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 300 kB\nSwapTotal: 50 kB\n",
    )
    memory = tree.probe().memory
    assert (memory.total_bytes, memory.available_bytes) == (1000 << 10, 420 << 10)
    assert memory.swap_used_bytes is None


def test_huge_pages(tree: Tree) -> None:
    tree.write("proc/meminfo", "HugePages_Total: 12\nHugePages_Free: 5\nHugepagesize: 2048 kB\n")
    tree.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    assert tree.probe().memory.huge_pages.to_json() == {
        "transparent": "madvise",
        "size_bytes": 2 << 20,
        "total": 12,
        "free": 5,
    }


def test_v1_throttling_counts_in_nanoseconds(tree: Tree) -> None:
    tree.cgroup1({"cpu": "/a"})
    tree.write("sys/fs/cgroup/cpu/a/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 1500000000\n")
    found = read_throttling(Sysfs(tree.root))
    assert found is not None
    assert (found.periods, found.throttled_periods, found.throttled_s) == (9, 3, 1.5)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_pinned_process_reports_what_it_is_pinned_to() -> None:
    cpu = max(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{cpu}}})\n"
        "from probes.machine import probe; m = probe(); print(m.effective.cpus, m.effective.cpu_count)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.split("\n")[0] == f"({cpu},) 1"


def test_a_real_quota_is_seen(tmp_path: Path) -> None:
    """In a real v1 or v2 group of half a CPU, where the system lets us make one."""
    groups = [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")]
    parent = next((path for path in groups if (path / "cgroup.procs").exists()), None)
    if parent is None or not os.access(parent, os.W_OK):
        pytest.skip("no writable cgroup")
    group = parent / f"cputune-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no cgroup can be made")
    try:
        _limit(group)
        code = (
            f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
            "from probes.machine import probe\n"
            "e = probe().effective; print(e.cpu_quota, e.limited_by)"
        )
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=60
        )
        assert run.stdout.split() == ["0.5", "quota"]
    finally:
        group.rmdir()


def _limit(group: Path) -> None:
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text("50000 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("50000")
    except OSError:
        pytest.skip("the CPU controller is not available here")
