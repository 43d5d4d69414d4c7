"""The machine as a value: fingerprint, document, reader, costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trees import CPU, Tree

from probes.bandwidth import Bandwidth
from probes.cpulist import format_cpu_list, parse_cpu_list, parse_cpu_mask, parse_int, parse_size_bytes
from probes.errors import CputuneError, ProbeError
from probes.fingerprint import memory_class
from probes.machine import PROBES, Machine, probe
from probes.sysfs import Sysfs

PROJECT = Path(__file__).resolve().parents[2]


def full(tree: Tree) -> Tree:
    tree.plain(4).memory(16 << 20, 12 << 20).node(0, "0-3", 16 << 20)
    for cpu in range(4):
        tree.cache(cpu, 0, 1, "Data", "48K", str(cpu)).cache(cpu, 1, 3, "Unified", "16M", "0-3")
    return tree


def test_the_table_s_names_are_fields_of_the_machine(tree: Tree) -> None:
    assert set(PROBES) <= set(Machine.__dataclass_fields__)
    for name, value in vars(tree.probe()).items():
        assert value is not None or name in ("bandwidth", "governor")


def test_the_fingerprint_survives_what_does_not_decide_speed(tree: Tree) -> None:
    first = full(tree).probe().fingerprint
    tree.write("proc/sys/kernel/hostname", "other").write("proc/sys/kernel/osrelease", "9.9.9")
    tree.x86(reversed(range(4)), flags="newflag bmi2 f16c fma avx2 avx sse4_2 lm sse2 fpu")
    tree.memory((16 << 20) - 200_000, 3 << 20).max_khz(dict.fromkeys(range(4), 4_000_000))
    tree.write("proc/loadavg", "3.0 3.0 3.0 1/1 1").write(f"{CPU}/cpu0/cpufreq/scaling_governor", "powersave")
    assert tree.probe().fingerprint == first
    assert len(first) == 16


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree.affinity("0-2"),
        lambda tree: tree.cgroup2("/a").write("sys/fs/cgroup/a/cpu.max", "250000 100000"),
        lambda tree: tree.x86(range(4), flags="fpu lm sse2 sse4_2 avx"),
        lambda tree: tree.x86(range(4), name="Another CPU"),
        lambda tree: tree.cache(0, 1, 3, "Unified", "32M", "0-3"),
        lambda tree: tree.memory(32 << 20, 12 << 20),
        lambda tree: tree.cgroup2("/a").write("sys/fs/cgroup/a/memory.max", str(4 << 30)),
        lambda tree: tree.node(0, "0-1", 8 << 20).node(1, "2-3", 8 << 20),
        lambda tree: tree.cores([[0, 1], [2, 3]]),
    ],
)
def test_the_fingerprint_tells_what_decides_speed(tree: Tree, change: object) -> None:
    first = full(tree).probe().fingerprint
    assert callable(change)
    change(tree)
    assert tree.probe().fingerprint != first


def test_memory_classes_are_wide() -> None:
    gib = 1 << 30
    assert memory_class(16 * gib) == memory_class(int(15.3 * gib)) == 16.0
    assert memory_class(8 * gib) != memory_class(12 * gib) != memory_class(16 * gib)
    assert memory_class(None) == memory_class(0) == 0.0


def test_a_document_reads_back_as_the_same_machine(tree: Tree) -> None:
    tree.cgroup2("/a").write("sys/fs/cgroup/a/cpu.max", "250000 100000").affinity("0-2")
    machine = (
        full(tree).probe().with_bandwidth(Bandwidth(((1, 10.5), (3, 20.25)), 1 << 20, 1.9, notes=("n",)))
    )
    document = json.loads(json.dumps(machine.to_json()))
    assert Machine.from_json(document) == machine
    assert document["bandwidth_gbps"] == machine.bandwidth_gbps == 20.25
    assert machine.fingerprint == tree.probe().fingerprint


def test_the_document_has_the_promised_keys(tree: Tree) -> None:
    document = full(tree).probe().to_json()
    promised = (
        "schema_version fingerprint arch vendor model_name sockets physical_cores logical_cpus "
        "threads_per_core core_kinds numa_nodes caches features cgroup effective bandwidth_gbps advice notes"
    )
    assert set(promised.split()) <= set(document)
    assert document["bandwidth_gbps"] is None


def test_a_sparse_document_is_read_and_the_rest_is_unknown() -> None:
    machine = Machine.from_json(
        {"schema_version": 1, "fingerprint": "ab", "arch": "x86_64", "logical_cpus": 8, "features": ["AVX2"],
         "bandwidth_gbps": 40, "from_the_future": {}}
    )  # fmt: skip
    assert (machine.effective.cpu_count, machine.inference_isa.vector, machine.bandwidth_gbps) == (
        8,
        "avx2",
        40.0,
    )
    assert machine.caches == machine.core_kinds == ()


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ([], "not a JSON object"),
        ({}, "schema_version"),
        ({"schema_version": 2, "fingerprint": "a"}, "schema_version"),
        ({"schema_version": 1}, "no fingerprint"),
        ({"schema_version": 1, "fingerprint": "a", "sockets": "two"}, "machine.sockets"),
        ({"schema_version": 1, "fingerprint": "a", "logical_cpus": 0}, "machine.logical_cpus"),
        ({"schema_version": 1, "fingerprint": "a", "logical_cpus": True}, "machine.logical_cpus"),
        ({"schema_version": 1, "fingerprint": "a", "features": "avx2"}, "machine.features"),
        ({"schema_version": 1, "fingerprint": "a", "features": [1]}, "machine.features"),
        ({"schema_version": 1, "fingerprint": "a", "caches": [3]}, "machine.caches[0]"),
        ({"schema_version": 1, "fingerprint": "a", "effective": {"cpus": [-1]}}, "machine.effective.cpus"),
        (
            {"schema_version": 1, "fingerprint": "a", "cgroup": {"cpu_quota": float("nan")}},
            "machine.cgroup.cpu_quota",
        ),
        ({"schema_version": 1, "fingerprint": "a", "cores": [[0], 1]}, "machine.cores"),
        ({"schema_version": 1, "fingerprint": "a", "is_virtual": "yes"}, "machine.is_virtual"),
        ({"schema_version": 1, "fingerprint": "a", "arch": 5}, "machine.arch"),
        # What no distance could be computed of.
        ({"schema_version": 1, "fingerprint": "a", "bandwidth_gbps": -40}, "machine.bandwidth_gbps"),
        ({"schema_version": 1, "fingerprint": "a", "bandwidth_gbps": 10**400}, "machine.bandwidth_gbps"),
        (
            {"schema_version": 1, "fingerprint": "a", "memory": {"total_bytes": 10**400}},
            "machine.memory.total_bytes",
        ),
    ],
)
def test_what_is_no_machine_document_is_refused_in_one_line(document: object, part: str) -> None:
    with pytest.raises(ProbeError) as caught:
        Machine.from_json(document)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"not a directory; got .*nowhere"):
        probe(tmp_path / "nowhere")


def test_errors_tell_only_the_parts_they_have() -> None:
    assert str(CputuneError("it broke")) == "it broke"
    error = CputuneError("too many\nthreads", seen=3, allowed="1 to 2", hint="use --threads 2")
    assert str(error) == "too many threads; got 3; allowed: 1 to 2; use --threads 2"


def test_links_out_of_the_root_are_not_followed(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0-99")
    (tree.root / "sys").mkdir()
    (tree.root / "sys/outside").symlink_to(tmp_path / "secret")
    (tree.root / "out").symlink_to("/")
    (tree.root / "sys/inside").symlink_to("file")
    tree.write("sys/file", "7\n")
    sysfs = Sysfs(tree.root)
    assert (sysfs.text("sys/outside"), sysfs.text("out/proc/stat"), sysfs.integer("sys/inside")) == (
        None,
        None,
        7,
    )
    assert sysfs.text("../secret") is sysfs.text("sys/../../secret") is None
    assert not sysfs.exists("out/proc")
    assert sysfs.names("out/proc") == []


def test_pipes_folders_and_odd_names_are_absent_not_fatal(tree: Tree) -> None:
    os.mkfifo(tree.root / "pipe")
    (tree.root / "folder").mkdir()
    sysfs = Sysfs(tree.root)
    assert not sysfs.text("pipe")
    assert sysfs.text("folder") is sysfs.text("a\0b") is sysfs.text("") is sysfs.text("pipe/below") is None
    assert sysfs.names("pipe") == []


def test_other_roots_never_ask_the_running_machine(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sched_getaffinity", "cpu_count", "uname", "sysconf", "getloadavg"):
        monkeypatch.setattr(os, name, lambda *_: pytest.fail("asked the running machine"))
    assert tree.probe().effective.cpu_count == 1
    assert full(tree).probe().effective.cpu_count == 4


def test_the_running_machine_can_be_probed() -> None:
    machine = probe()
    assert machine.arch == os.uname().machine
    assert machine.effective.cpu_count >= 1
    assert set(machine.effective.cpus) <= set(os.sched_getaffinity(0))
    assert probe().fingerprint == machine.fingerprint
    assert Machine.from_json(machine.to_json()) == machine


def test_probing_loads_nothing_heavy() -> None:
    code = "import sys; from probes.machine import probe; probe().to_json(); print(*sys.modules, sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=60
    )
    roots = {name.partition(".")[0] for name in run.stdout.split()}
    assert not roots & {"numpy", "pydantic", "sqlmodel", "psutil", "cpuinfo", "optuna", "typer", "asyncio"}


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("", ()),
        ("\n", ()),
        ("3,1,1 2", (1, 2, 3)),
        ("0-7:2/4", (0, 1, 4, 5)),
        ("5-2,x,-1,7-,0x3,9", (9,)),
        ("0-5:1/0", ()),
        ("4294967295", ()),
    ],
)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cpus
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


def test_cpu_lists_are_written_as_taskset_takes_them() -> None:
    assert format_cpu_list((6, 1, 4, 7, 0, 3)) == "0-1,3-4,6-7"
    assert format_cpu_list((5,)) == "5"


def test_huge_cpu_ranges_are_cut() -> None:
    assert len(parse_cpu_list("0-999999999")) == 65536


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("f", (0, 1, 2, 3)),
        ("0000,00000001,00000002", (1, 32)),
        ("1,2", (1, 32)),
        ("zz", ()),
        ("", ()),
        ("0", ()),
    ],
)
def test_cpu_masks(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpu_mask(text) == cpus


def test_sizes_and_numbers() -> None:
    sizes = ("48K", "32M", "491520 kB", "1024", "1G", "many", "", None, "-1")
    assert [parse_size_bytes(text) for text in sizes] == [
        49152, 32 << 20, 480 << 20, 1024, 1 << 30, None, None, None, None,
    ]  # fmt: skip
    assert [parse_int(text) for text in ("7", " -1 ", "0x1f", "1.5", "", None, "9" * 40)] == [
        7, -1, 31, None, None, None, None,
    ]  # fmt: skip
