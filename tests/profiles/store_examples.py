"""The nouns that the tests of the store put in, and the child processes that they kill."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace

from probes.machine import Machine
from profiles.records import Measurement, Profile, ProfileStatus, StudySpec
from profiles.vocabulary import (
    WORKLOADS,
    Config,
    Interval,
    Limit,
    ModelInfo,
    Objective,
    Quality,
    RoundSamples,
)

MACHINE = Machine.from_json({"schema_version": 1, "fingerprint": "f00d", "model_name": "Test CPU"})
MODEL = ModelInfo(
    name="tiny",
    digest="ab" * 32,
    format="gguf",
    architecture="llama",
    parameter_count=1000,
    layer_count=2,
    hidden_size=64,
    head_count=4,
    kv_head_count=2,
    key_length=16,
    value_length=16,
    vocabulary_size=100,
    context_length=2048,
    file_bytes=5_000_000_000,
    tensor_mix=(("f32", 40), ("q4_0", 560)),
    bits_per_weight=4.8,
)
DEFAULT = Config.of("simulated", "source", {"n_threads": 1, "repack": False})
FAST = Config.of("simulated", "q8_0", {"n_threads": 2, "repack": True, "kv": "f16", "scale": 1.0})
MEASUREMENT = Measurement(MACHINE.fingerprint, "sim 1", "cd" * 32, FAST, WORKLOADS["chat"])
ROUND = RoundSamples("short", (61.25,), ((6.1, 6.2),), wall_ms=170.5, facts={"run_delay_ms": 0.25})
SPEC = StudySpec(
    fingerprint=MACHINE.fingerprint,
    model_digest=MODEL.digest,
    workload=WORKLOADS["chat"],
    engines=("simulated",),
    space_hash="beef",
    storage_name="chat tiny beef",
    name="chat-tiny",
    objectives=(Objective("response_ms"),),
    quality_level="near-lossless",
    limits=(Limit("peak_rss_mib", "<=", 500.0),),
    seed=7,
    sampler="tpe",
    request={"budget_s": 60},
    environment={"kernel": "6.1"},
    engine_builds={"simulated": "sim 1"},
)
PROFILE = Profile(
    fingerprint=MACHINE.fingerprint,
    model_digest=MODEL.digest,
    workload=WORKLOADS["chat"],
    objectives=SPEC.objectives,
    quality_level="near-lossless",
    limits=SPEC.limits,
    status=ProfileStatus.CONFIRMED,
    conditions="quiet",
    config=FAST,
    variant_digest="cd" * 32,
    bits_per_weight=8.5,
    metrics={"response_ms.p50": 800.0, "peak_rss_mib": 300.0},
    baseline_config=DEFAULT,
    baseline_metrics={"response_ms.p50": 1000.0},
    speedup=Interval(1.25, 1.2, 1.3, 0.992),
    quality=Quality(0.004, 0.006, 0.98, 0.975, 1.002, 1024),
    engine_build="sim 1",
    kernel="6.1",
)


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process; its exit status, or minus the signal that ended it."""
    return wait_for(start_child(work))


def start_child(work: Callable[[], object]) -> int:
    """Begin `work` in a forked process and return the process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def wait_for(child: int) -> int:
    """The exit status of a child, or minus its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def renamed(spec: StudySpec, storage_name: str) -> StudySpec:
    """A spec of another identity."""
    return replace(spec, storage_name=storage_name, name=storage_name)
