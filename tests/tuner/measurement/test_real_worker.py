"""A real engine in a worker: one OpenMP runtime, threads where they were asked for, exact rounds."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Workload
from tests.support.builds import demo_model, safe
from tuner import engines
from tuner.engines.base import Phase, Scope
from tuner.measurement import placement
from tuner.measurement.bench import Bench
from tuner.measurement.isolation import Deadlines, Worker

pytestmark = pytest.mark.real

WORKLOAD = Workload("tiny", prompt_tokens=48, output_tokens=12)


@pytest.fixture
def demo_path() -> Path:
    return demo_model()


@pytest.fixture
def config(machine: Machine) -> Config:
    cpus = machine.effective.cpu_count
    threads = {"n_threads": 1, "n_threads_batch": cpus}
    cache = {"n_ubatch": 64, "flash_attn": "off", "type_k": "f16", "type_v": "f16"}
    # Threads that spin while they wait collapse beside a busy neighbour.
    waiting = {"wait_policy": "passive"}
    return Config.of(
        "llama_cpp", "source", safe("llama_cpp", {**threads, **cache, **waiting, "repack": True})
    )


@pytest.fixture
def bench(machine: Machine, model: ModelInfo, demo_path: Path, tmp_path: Path) -> Iterator[Bench]:
    described = replace(model, vocabulary_size=49152, key_length=64, value_length=64)
    with Bench(
        machine, described, WORKLOAD, engines.get, lambda _: demo_path, seed=1, log_directory=tmp_path
    ) as bench:
        yield bench


def test_k06_e19_one_openmp_runtime_and_no_thread_astray(config: Config, demo_path: Path, tmp_path: Path):
    cpu = max(os.sched_getaffinity(0))
    with Worker.start(
        engines.get("llama_cpp"),
        environment=placement.environment(config),
        affinity=[cpu],
        log_path=tmp_path / "worker.log",
        deadline_s=60,
    ) as worker:
        worker.load(demo_path, {"repack": config.as_dict()["repack"]}, Deadlines(), affinity=[cpu])
        own = {name: value for name, value in config.settings if name not in ("repack", "wait_policy")}
        worker.request("configure", {"settings": own, "context_tokens": 64, "streams": 1}, 60)
        request = {"prompts": [[50] * 32], "output_tokens": 2, "reuse_prefix": False}
        worker.request("round", request, 60)
        maps = Path(f"/proc/{worker.pid}/maps").read_text().splitlines()
        tasks = [int(task.name) for task in Path(f"/proc/{worker.pid}/task").iterdir()]
        assert {tuple(os.sched_getaffinity(task)) for task in tasks} == {(cpu,)}
    mapped = {Path(line.split()[-1]) for line in maps if "/" in line}
    runtimes = {path for path in mapped if path.name.startswith(("libgomp", "libiomp", "libomp"))}
    assert len(runtimes) <= 1, runtimes
    # K06 and the rule behind it: never two engines in one process.
    assert not any("onnxruntime" in str(path) or "openvino" in str(path) for path in mapped)


def test_a_real_engine_is_measured(bench: Bench, config: Config):
    full = bench.measure(config, rounds=1, kind="full", retries=0)
    assert len(full.rounds[0].gaps_ms[0]) == WORKLOAD.output_tokens - 1
    assert full.rounds[0].facts["cpu_ns"] > 0
    assert full.load_ms > 0
    assert full.memory["peak_file_mib"] > 50
    decode = bench.measure(
        config.with_settings(n_threads_batch=1), rounds=1, phases=frozenset({Phase.DECODE}), retries=0
    )
    assert decode.switched is Scope.RUN
    # The prompt of the round before is not computed again: one token is, before the first gap.
    assert decode.rounds[0].wall_ms < full.rounds[0].wall_ms
    flash = bench.measure(config.with_settings(flash_attn="on"), rounds=1, retries=0)
    assert flash.switched is Scope.CONTEXT
    assert flash.effective["flash_attn"] == "on"


def test_s15_a_worker_stays_flat_over_contexts(bench: Bench, config: Config):
    """What a context took is given back. The allocator may keep a block of 10 MiB or not, so minima count."""
    seen = []
    for number in range(14):
        changed = config.with_settings(n_ubatch=(32, 64)[number % 2])
        seen.append(bench.measure(changed, rounds=1, short_tokens=2, retries=0).memory["peak_anon_mib"])
    assert min(seen[-4:]) - min(seen[:4]) < 5.0, seen
