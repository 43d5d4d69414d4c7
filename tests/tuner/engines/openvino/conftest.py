"""The demo model as OpenVINO folders, a small one of random weights, and a made-up graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import Machine, probe
from profiles.vocabulary import ModelInfo
from tests.support import builds
from tests.support.folders import write_random_folder


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
    """The demo model's weights as they are: where its answers matter."""
    return _given(builds.demo_model(), tmp_path_factory.mktemp("openvino"))


@pytest.fixture(scope="session")
def f16_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model's weights dequantized: where its answers matter."""
    return _wide(builds.demo_model(), tmp_path_factory.mktemp("openvino"))


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights and a tokenizer of bytes: for what needs a model, whatever its answers mean."""
    from tuner.engines.conversion import to_gguf

    folder = write_random_folder(tmp_path_factory.mktemp("random") / "folder", "llama-bpe")
    target = tmp_path_factory.mktemp("small") / "small.gguf"
    to_gguf.make(folder, target, {})
    return target


@pytest.fixture(scope="session")
def small_folder(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model in q8_0, its weights as they are."""
    from tuner.engines.llama_cpp.recipes import make

    folder = tmp_path_factory.mktemp("openvino")
    (folder / "source").mkdir()
    make(small_model, folder / "source" / "q8_0.gguf", {"file_type": "q8_0"})
    return _given(folder / "source" / "q8_0.gguf", folder)


@pytest.fixture(scope="session")
def small_f16_folder(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model's weights in f16."""
    return _wide(small_model, tmp_path_factory.mktemp("openvino"))


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of one layer, without a tokenizer."""
    import openvino as ov

    from tuner.engines.openvino import tiny

    folder = tmp_path_factory.mktemp("openvino-tiny")
    ov.save_model(tiny.model(), folder / "openvino_model.xml")
    return folder


def _given(model: Path, folder: Path) -> Path:
    from tuner.engines.openvino import recipes

    target = folder / "given.openvino"
    recipes.make(model, target, {"weights": "given"})
    return target


def _wide(model: Path, folder: Path) -> Path:
    from tuner.engines.openvino import widen

    widen.make(model, folder / "f16.gguf", {})
    return _given(folder / "f16.gguf", folder)
