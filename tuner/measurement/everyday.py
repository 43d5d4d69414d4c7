"""Measures an engine the way that people use it without cputune: its everyday interface, nothing set."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from probes.machine import Machine
from profiles.records import Conditions
from profiles.vocabulary import Config, ModelInfo, Workload
from tuner.engines.base import SOURCE, Engine
from tuner.measurement.bench import RETRIES, Bench
from tuner.measurement.metrics import summarise

ROUNDS = 3


def measure_everyday(
    engine: Engine,
    machine: Machine,
    model: ModelInfo,
    workload: Workload,
    path: Path,
    *,
    seed: int,
    log_directory: Path,
    conditions: Conditions = "quiet",
    remaining_s: Callable[[], float] | None = None,
) -> dict[str, float] | None:
    """The flat metrics of `ROUNDS` full rounds of the file at `path`, in a fresh process.

    None where there is no such number: the engine has no everyday interface, the workload has several
    streams, or the model has no tokenizer. Under "loaded" conditions disturbed rounds count like others.
    `remaining_s` bounds every wait. Raises WorkerError for what goes wrong in the worker, and where no round
    is clean.
    """
    if engine.everyday is None or workload.streams != 1 or not model.has_tokenizer:
        return None
    everyday = copy.copy(engine)
    everyday.session = engine.everyday
    with Bench(
        machine,
        model,
        workload,
        lambda _: everyday,
        lambda _: path,
        seed=seed,
        log_directory=log_directory,
        remaining_s=remaining_s,
    ) as bench:
        measured = bench.measure(
            Config(engine.name, SOURCE),
            rounds=ROUNDS,
            kind="full",
            fresh=True,
            retries=RETRIES if conditions == "quiet" else 0,
        )
    rounds = measured.rounds
    if conditions == "loaded":
        rounds = tuple(replace(samples, dropped=None) for samples in rounds)
    return summarise(
        rounds,
        workload,
        effective_cpus=machine.effective.cpu_count,
        variant_bytes=path.stat().st_size,
        first_request_ms=measured.first_request_ms,
        memory=measured.memory,
    )
