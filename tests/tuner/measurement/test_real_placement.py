"""Host-wide settings reach the real engine: read from /proc, and from what the OpenMP runtime says itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from probes.core_kinds import CoreKind
from probes.machine import Machine
from probes.numa import NumaNode
from profiles.vocabulary import Config, ModelInfo, Workload
from tests.support.builds import demo_model, safe
from tuner import engines
from tuner.measurement import placement
from tuner.measurement.bench import Bench

pytestmark = pytest.mark.real

WORKLOAD = Workload("tiny", prompt_tokens=48, output_tokens=4)


@pytest.fixture
def config() -> Config:
    plain = {"n_threads": 1, "n_threads_batch": 1, "n_ubatch": 64, "flash_attn": "off", "repack": True}
    return Config.of("llama_cpp", "source", safe("llama_cpp", plain))


@pytest.fixture
def open_bench(machine: Machine, model: ModelInfo, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    opened: list[Bench] = []

    def make(on: Machine = machine) -> Bench:
        described = replace(model, vocabulary_size=49152, key_length=64, value_length=64)
        opened.append(
            Bench(
                on, described, WORKLOAD, engines.get, lambda _: demo_model(), seed=1, log_directory=tmp_path
            )
        )
        return opened[-1]

    yield make
    for bench in opened:
        bench.close()


def pid_of(bench: Bench) -> int:
    assert bench._opened is not None
    return bench._opened.worker.pid


def huge_mib(pid: int) -> float:
    """Anonymous memory in huge pages, summed over the process's mappings."""
    found = re.findall(r"^AnonHugePages:\s+(\d+) kB", Path(f"/proc/{pid}/smaps").read_text(), re.MULTILINE)
    return sum(map(int, found)) / 1024


def test_huge_pages_hold_what_is_not_mapped(
    machine: Machine, config: Config, open_bench: Callable[..., Bench]
):
    if not placement._has_huge_pages(machine):
        pytest.skip("this kernel gives huge pages to nobody, or to everybody")
    bench = open_bench()
    seen = {}
    for name, changes in {
        "off": {"huge_pages": False},
        "on": {"huge_pages": True},
        "on, weights read": {"huge_pages": True, "mmap": False, "repack": False},
        "on, weights mapped": {"huge_pages": True, "mmap": True, "repack": False},
    }.items():
        measured = bench.measure(config.with_settings(**changes), rounds=1, short_tokens=2, retries=0)
        assert measured.unknown == ()
        assert measured.effective["huge_pages"] is changes["huge_pages"]
        seen[name] = huge_mib(pid_of(bench))
        assert measured.memory["huge_pages_mib"] == pytest.approx(seen[name], abs=4.0)
    size_mib = demo_model().stat().st_size / 2**20
    assert seen["off"] == 0
    # The KV cache and the buffers alone; then the weights too.
    assert 0 < seen["on, weights mapped"] < 0.8 * size_mib
    assert seen["on, weights read"] - seen["on, weights mapped"] > 0.7 * size_mib


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("default", {}),
        ("short_spin", {"GOMP_SPINCOUNT": "20000"}),
        ("passive", {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}),
    ],
)
def test_e12_the_openmp_runtime_has_the_wait_policy(
    config: Config,
    open_bench: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    said: dict[str, str],
):
    monkeypatch.setitem(placement._ALWAYS, "OMP_DISPLAY_ENV", "VERBOSE")
    bench = open_bench()
    measured = bench.measure(config.with_settings(wait_policy=policy), rounds=1, short_tokens=2, retries=0)
    assert measured.effective["wait_policy"] == policy
    assert bench._opened is not None
    log = bench._opened.worker.log_path.read_text()
    if "GOMP_SPINCOUNT" not in log:
        pytest.skip("this build waits in another OpenMP runtime, which does not tell")
    shown = dict(re.findall(r"(GOMP_SPINCOUNT|OMP_WAIT_POLICY) = '(\w+)'", log))
    assert {name: shown[name] for name in said} == said
    assert policy != "default" or shown["GOMP_SPINCOUNT"] not in ("0", "20000")


@pytest.fixture
def divided(machine: Machine) -> Machine:
    """This machine, as if its CPUs were threads of one core, of two kinds, and on two nodes."""
    cpus = machine.effective.cpus
    if len(cpus) < 2:
        pytest.skip("one CPU leaves nothing to place")
    return replace(
        machine,
        topology=replace(machine.topology, cores=(cpus,)),
        core_kinds=(CoreKind("performance", cpus[1:2], 1), CoreKind("efficiency", cpus[:1], 1)),
        numa_nodes=(NumaNode(0, cpus[:1]), NumaNode(1, cpus[1:])),
    )


@pytest.mark.parametrize("where", ["none", "cores", "fast", "node0", "node1"])
def test_e19_every_thread_of_the_real_engine_is_where_it_was_placed(
    divided: Machine, config: Config, open_bench: Callable[..., Bench], where: str
):
    cpus = divided.effective.cpus
    wanted = {"none": cpus, "cores": cpus[:1], "fast": cpus[1:2], "node0": cpus[:1], "node1": cpus[1:]}
    bench = open_bench(divided)
    bench.measure(config.with_settings(placement=where), rounds=1, short_tokens=2, retries=0)
    pid = pid_of(bench)
    tasks = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    assert {tuple(sorted(os.sched_getaffinity(task))) for task in tasks} == {wanted[where]}


@pytest.mark.parametrize("where", ["none", "cores", "node0", "node1"])
def test_e18_the_policy_of_every_thread_is_read_back(
    divided: Machine, machine: Machine, config: Config, open_bench: Callable[..., Bench], where: str
):
    """A node that is not really there can't be bound to: then it is unknown where memory lies, and said."""
    bench = open_bench(divided)
    measured = bench.measure(config.with_settings(placement=where), rounds=1, short_tokens=2, retries=0)
    tasks = Path(f"/proc/{pid_of(bench)}/task").iterdir()
    policies = {(task / "numa_maps").read_text().split()[1] for task in tasks}
    node = placement.node(config.with_settings(placement=where))
    is_real = node in {node.id for node in machine.numa_nodes}
    if is_real and policies == {"default"}:
        pytest.skip("set_mempolicy is refused here")
    assert policies == {f"bind:{node}" if is_real else "default"}
    assert measured.unknown == (("placement",) if node is not None and not is_real else ())


def test_e18_memory_lies_on_the_node_that_it_was_placed_on(
    machine: Machine, config: Config, open_bench: Callable[..., Bench]
):
    nodes = [name for name in placement.choices(machine) if name.startswith("node")]
    if not nodes:
        pytest.skip("one NUMA node has no elsewhere")
    bench = open_bench()
    for name in nodes:
        bench.measure(config.with_settings(placement=name, mmap=False), rounds=1, short_tokens=2, retries=0)
        pages: dict[str, int] = {}
        for line in Path(f"/proc/{pid_of(bench)}/numa_maps").read_text().splitlines():
            for node, count in re.findall(r" N(\d+)=(\d+)", line) if " anon=" in line else ():
                pages[f"node{node}"] = pages.get(f"node{node}", 0) + int(count)
        assert pages[name] > 0.9 * sum(pages.values())
