"""The demo model as OpenVINO folders, and a made-up one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import Machine, probe
from profiles.vocabulary import ModelInfo
from tests.support import builds


@pytest.fixture(scope="session")
def machine() -> Machine:
    return probe()


@pytest.fixture(scope="session")
def demo_info() -> ModelInfo:
    """The demo model as its header says."""
    return ModelInfo(
        name="smollm2", digest="00", format="gguf", architecture="llama", parameter_count=134_515_008,
        layer_count=30, hidden_size=576, head_count=9, kv_head_count=3, key_length=64, value_length=64,
        vocabulary_size=49152, context_length=8192, file_bytes=98_362_432,
        tensor_mix=(("f32", 140_000), ("q4_1", 66_000_000), ("q8_0", 30_000_000)), bits_per_weight=5.8,
        has_chat_template=True,
    )  # fmt: skip


@pytest.fixture(scope="session")
def exact_info(demo_info: ModelInfo) -> ModelInfo:
    """As if its tensors had types that OpenVINO reads exactly."""
    return replace(demo_info, tensor_mix=(("f32", 140_000), ("q8_0", 130_000_000)))


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model's weights as they are."""
    from tuner.engines.openvino import recipes

    target = tmp_path_factory.mktemp("openvino") / "demo.openvino"
    recipes.make(builds.demo_model(), target, {"weights": "given"})
    return target


@pytest.fixture(scope="session")
def f16_folder(demo_folder: Path) -> Path:
    """The demo model's weights dequantized."""
    from tuner.engines.openvino import recipes, widen

    target = demo_folder.with_name("demo-f16.openvino")
    widen.make(builds.demo_model(), target.with_suffix(".gguf"), {})
    recipes.make(target.with_suffix(".gguf"), target, {"weights": "given"})
    return target


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of one layer, without a tokenizer."""
    import openvino as ov

    from tuner.engines.openvino import tiny

    folder = tmp_path_factory.mktemp("openvino-tiny")
    ov.save_model(tiny.model(), folder / "openvino_model.xml")
    return folder
