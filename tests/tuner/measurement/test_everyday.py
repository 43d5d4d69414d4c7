"""The number that people see, measured through the interface that they use."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import Machine
from profiles.vocabulary import ModelInfo, Workload
from tests.support import everyday
from tests.support.builds import everyday_model
from tuner import engines
from tuner.engines.simulated.describe import Simulated
from tuner.measurement.everyday import measure_everyday


def test_another_session_is_measured_without_any_setting(
    machine: Machine, model: ModelInfo, workload: Workload, tmp_path: Path
):
    path = tmp_path / "any.simulated"
    path.write_bytes(b"any file")
    engine = copy.copy(Simulated())
    place = {"seed": 1, "log_directory": tmp_path / "logs"}
    assert measure_everyday(engine, machine, model, workload, path, **place) is None
    engine.everyday = everyday.REFERENCE
    found = measure_everyday(engine, machine, model, workload, path, **place)
    assert found is not None
    assert found["response_ms.p50"] > found["ttft_ms.p50"] > 0
    assert "response_ms.max_of_n" in found
    assert measure_everyday(engine, machine, model, replace(workload, streams=2), path, **place) is None
    assert (
        measure_everyday(engine, machine, replace(model, has_tokenizer=False), workload, path, **place)
        is None
    )


@pytest.mark.real
def test_create_completion_is_measured(machine: Machine, model: ModelInfo, tmp_path: Path):
    path = everyday_model(tmp_path)
    workload = Workload("tiny", prompt_tokens=16, output_tokens=3)
    described = replace(model, vocabulary_size=49152)
    engine = engines.get("llama_cpp")
    place = {"seed": 1, "log_directory": tmp_path, "conditions": "loaded"}
    found = measure_everyday(engine, machine, described, workload, path, **place)
    assert found is not None
    assert found["response_ms.p50"] >= found["ttft_ms.p50"]
