"""Where a worker runs: offered where it means something, set before the engine is imported, verified."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from probes.core_kinds import CoreKind
from probes.effective import Effective
from probes.machine import Machine
from probes.numa import NumaNode
from probes.topology import Topology
from profiles.vocabulary import Config, ModelInfo, Role, Workload
from tuner import process
from tuner.engines.base import Scope
from tuner.engines.simulated.describe import Simulated
from tuner.errors import UsageError, WorkerError
from tuner.measurement import placement
from tuner.measurement.bench import Bench
from tuner.search.space import EngineSpace, Space

PAIRS = ((0, 4), (1, 5), (2, 6), (3, 7))
KINDS = (CoreKind("performance", (0, 4, 1, 5), 2), CoreKind("efficiency", (2, 6, 3, 7), 4))
NODES = (NumaNode(0, (0, 1, 4, 5)), NumaNode(1, (2, 3, 6, 7)), NumaNode(2, ()))


def machine_of(
    cores: tuple[tuple[int, ...], ...] = PAIRS, *, usable: tuple[int, ...] | None = None, **fields
):
    cpus = tuple(sorted(cpu for core in cores for cpu in core))
    effective = Effective(cpus=usable or cpus, cpu_count=len(usable or cpus))
    topology = Topology(online=cpus, cores=cores, logical_cpus=len(cpus), physical_cores=len(cores))
    return replace(Machine(effective=effective, topology=topology), **fields)


def config_of(value: str, **settings: int) -> Config:
    return Config.of("simulated", "source", {"placement": value, **settings})


def test_a_plain_machine_is_offered_no_placement():
    plain = machine_of(((0,), (1,)), numa_nodes=(NumaNode(0, (0, 1)),))
    assert placement.choices(plain) == {}
    assert [d.name for d in placement.dimensions(Simulated(), plain)] == ["wait_policy"]
    assert placement.choices(Machine()) == {}


def test_one_thread_per_core_where_cores_have_several():
    assert placement.choices(machine_of()) == {"cores": (0, 1, 2, 3)}
    # CPU 0 belongs to somebody else: its core's other thread stands for the core.
    assert placement.choices(machine_of(usable=(1, 2, 3, 4, 5)))["cores"] == (1, 2, 3, 4)
    # Nothing is left to choose where each core has one usable thread.
    assert placement.choices(machine_of(usable=(0, 1, 2, 3))) == {}


def test_fast_cores_where_there_are_slow_ones():
    assert placement.choices(machine_of(core_kinds=KINDS))["fast"] == (0, 1, 4, 5)
    assert "fast" not in placement.choices(machine_of(core_kinds=KINDS[:1], usable=(0, 1)))


def test_e18_numa_nodes_where_several_have_usable_cpus():
    found = placement.choices(machine_of(numa_nodes=NODES))
    assert {name: found[name] for name in found if name != "cores"} == {
        "node0": (0, 1, 4, 5),
        "node1": (2, 3, 6, 7),
    }
    assert not any(name.startswith("node") for name in placement.choices(machine_of(numa_nodes=NODES[:1])))
    confined = placement.choices(machine_of(numa_nodes=NODES, usable=(2, 3, 6)))
    assert not any(name.startswith("node") for name in confined)


def test_e18_a_change_of_placement_needs_a_fresh_process():
    described = placement.dimensions(Simulated(), machine_of(numa_nodes=NODES))
    dimension = next(d for d in described if d.name == "placement")
    assert dimension.values == ("none", "cores", "node0", "node1")
    assert (dimension.default, dimension.scope, dimension.role) == ("none", Scope.PROCESS, Role.PLACEMENT)


def test_e18_memory_is_bound_to_the_node_of_the_placement():
    assert placement.node(config_of("node1")) == 1
    assert placement.node(config_of("cores")) is None
    assert placement.node(Config.of("simulated", "source", {})) is None


def test_more_threads_than_the_placement_has_cpus_are_no_configuration(model: ModelInfo, workload: Workload):
    machine = machine_of()
    engine = Simulated()
    described = (
        *engine.dimensions(machine, model, workload),
        *placement.dimensions(engine, machine),
    )
    crowded = config_of("cores", n_threads=4, n_threads_batch=5)
    assert placement.violation(crowded, machine, described) == (
        "n_threads_batch=5: allowed is 1 to 4, the CPUs of placement=cores"
    )
    assert placement.violation(config_of("none", n_threads=8), machine, described) is None
    space = Space(machine, model, workload, (EngineSpace(engine, ("source",), described),))
    few = {"n_threads": 4, "n_threads_batch": 4}
    assert space.make("simulated", "source", {**few, "placement": "cores"}) is not None
    assert space.make("simulated", "source", {**few, "n_threads_batch": 5, "placement": "cores"}) is None
    assert space.make("simulated", "source", {**few, "n_threads_batch": 5}) is not None


def test_a_placement_of_another_machine_is_named():
    with pytest.raises(UsageError, match=r"placement=node3 means nothing .* allowed is none, cores"):
        placement.affinity(config_of("node3"), machine_of())
    assert placement.affinity(config_of("cores"), machine_of()) == (0, 1, 2, 3)
    assert placement.affinity(config_of("none"), machine_of()) is None
    assert placement.affinity(Config.of("simulated", "source", {}), machine_of()) is None


@pytest.fixture
def paired() -> Machine:
    """This machine, as if all its CPUs were threads of one core."""
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    if len(cpus) < 2:
        pytest.skip("one CPU leaves nothing to place")
    return machine_of((cpus,))


def test_e19_a_placed_worker_runs_there_only(
    paired: Machine, default: Config, make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
):
    bench = make_bench()
    monkeypatch.setattr(bench, "_machine", paired)
    placed = default.with_settings(placement="cores", n_threads=1, n_threads_batch=1)
    measured = bench.measure(placed, rounds=1)
    assert "placement" not in measured.requested
    assert bench._opened is not None
    pid = bench._opened.worker.pid
    tasks = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    assert {tuple(os.sched_getaffinity(task)) for task in tasks} == {paired.effective.cpus[:1]}
    again = bench.measure(placed.with_settings(placement="none"), rounds=1)
    assert again.switched is Scope.PROCESS
    assert tuple(sorted(os.sched_getaffinity(bench._opened.worker.pid))) == paired.effective.cpus


def test_e19_a_thread_that_runs_elsewhere_ends_the_trial(
    paired: Machine, default: Config, make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
):
    bench = make_bench()
    monkeypatch.setattr(bench, "_machine", paired)
    # As if the affinity had been set too late: the worker's threads keep what they have.
    late = process._LAUNCHER.replace("os.sched_setaffinity", "(lambda *_: None)")
    monkeypatch.setattr(process, "_LAUNCHER", late)
    with pytest.raises(WorkerError, match="threads may run on CPUs"):
        bench.measure(default.with_settings(placement="cores", n_threads=1, n_threads_batch=1), rounds=1)
