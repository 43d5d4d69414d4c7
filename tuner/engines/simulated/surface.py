"""The response surface: how long the simulated engine takes, as a pure function of everything."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError

VARIABLE = "CPUTUNE_SIMULATED_WORLD"
"""A JSON object with fields of `World`."""

# Modelled after a 135M model on a small machine: ms a token on one CPU.
PREFILL_MS = {"source": 4.0, "f16": 1.8, "bf16": 1.04, "q8_0": 1.86, "q4_0": 2.12}
DECODE_FIXED_MS = 2.0
DECODE_WEIGHTS_MS = {"source": 4.4, "f16": 7.2, "bf16": 6.2, "q8_0": 3.9, "q4_0": 2.8}
_KV_FACTOR = {"f16": 1.0, "q8_0": 1.08, "q4_0": 1.18}
_OVERSUBSCRIBED = 3.0
_PREFILL_SCALING = 0.92
_DECODE_SCALING = 0.35
_BESIDE = {"default": 8.0, "short_spin": 4.0, "passive": 2.2}
"""How much longer a step takes whose threads wait for one that shares its CPU with other work."""
_STREAM_SHARE = 0.35


@dataclass(frozen=True)
class World:
    """The simulated machine: its CPUs, how noisy it is (relative, log-normal), and the noise's seed."""

    cpus: int
    noise: float = 0.0
    seed: int = 0
    wait_policy: str = "default"
    neighbours: int = 0
    """Other processes that keep a CPU each busy."""

    @classmethod
    def from_environment(cls) -> Self:
        """As `VARIABLE` says, on the CPUs that this process may use; raises EngineError for other fields."""
        wanted = json.loads(os.environ.get(VARIABLE, "{}"))
        unknown = sorted(set(wanted) - set(cls.__dataclass_fields__))
        if unknown:
            raise EngineError(f"{VARIABLE} has unknown fields: {', '.join(unknown)}")
        policy = "default"
        if os.environ.get("OMP_WAIT_POLICY") == "passive":
            policy = "passive"
        elif "GOMP_SPINCOUNT" in os.environ:
            policy = "short_spin"
        return cls(**{"cpus": len(os.sched_getaffinity(0)), "wait_policy": policy, **wanted})


def prefill_ms(world: World, variant: str, settings: Mapping[str, Setting], tokens: int) -> float:
    """Milliseconds to compute `tokens` prompt tokens."""
    ubatch = int(settings["n_ubatch"])
    per_token = PREFILL_MS[variant]
    if variant == "q4_0" and settings["repack"]:
        per_token /= 2
    if settings["flash_attn"] == "on":
        per_token *= 0.96
    # An average of both caches: each is read half of the time.
    kv = (_KV_FACTOR[str(settings["type_k"])] + _KV_FACTOR[str(settings["type_v"])]) / 2
    threads = int(settings["n_threads_batch"])
    speed = _speedup(world, threads, _PREFILL_SCALING)
    crowding = 2.0 if _crowded(world, threads) else 1.0
    return tokens * per_token * (1 + 11 / ubatch) * (1 + (kv - 1) / 4) / speed * crowding


def decode_ms(world: World, variant: str, settings: Mapping[str, Setting], depth: int, streams: int) -> float:
    """Milliseconds of one step that gives each of `streams` sequences a token, at a depth in tokens."""
    threads = int(settings["n_threads"] if streams == 1 else settings["n_threads_batch"])
    base = DECODE_FIXED_MS + DECODE_WEIGHTS_MS[variant] * (1 + _STREAM_SHARE * (streams - 1))
    kv = (_KV_FACTOR[str(settings["type_k"])] + _KV_FACTOR[str(settings["type_v"])]) / 2
    attention = depth / 4096 * (0.8 if settings["flash_attn"] == "on" else 1.0)
    return base * (kv + attention) / _speedup(world, threads, _DECODE_SCALING) * _waiting(world, threads)


def _speedup(world: World, threads: int, scaling: float) -> float:
    if threads > world.cpus:
        return float(world.cpus**scaling) / _OVERSUBSCRIBED
    return float(threads**scaling)


def _crowded(world: World, threads: int) -> bool:
    """Whether a thread must share a CPU with a neighbour."""
    return world.neighbours > 0 and threads > world.cpus - world.neighbours


def _waiting(world: World, threads: int) -> float:
    if _crowded(world, threads):
        return 2.0 if threads == 1 else _BESIDE[world.wait_policy]
    return 1.0 if threads == 1 else {"default": 1.0, "short_spin": 1.04, "passive": 1.5}[world.wait_policy]
