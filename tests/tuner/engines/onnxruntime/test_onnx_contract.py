"""The contract, on the made-up model."""

from pathlib import Path

import pytest

from probes.machine import Machine, probe
from profiles.vocabulary import ModelInfo
from tuner import engines
from tuner.engines.base import Engine
from tuner.engines.contract import EngineContract
from tuner.engines.onnxruntime import tiny


@pytest.mark.real
class TestOnnxRuntime(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return engines.get("onnxruntime")

    @pytest.fixture
    def machine(self) -> Machine:
        return probe()

    @pytest.fixture
    def model_path(self, tiny_folder: Path) -> Path:
        return tiny_folder

    @pytest.fixture
    def model(self) -> ModelInfo:
        return ModelInfo(
            name="tiny", digest="00", format="onnx", architecture="llama", parameter_count=30_000,
            layer_count=1, hidden_size=tiny.HIDDEN, head_count=tiny.HEADS, kv_head_count=tiny.HEADS,
            key_length=tiny.HEAD_SIZE, value_length=tiny.HEAD_SIZE, vocabulary_size=tiny.VOCABULARY,
            context_length=tiny.CONTEXT, file_bytes=1_000_000, tensor_mix=(("f32", 1_000_000),),
            bits_per_weight=32.0, has_chat_template=True,
        )  # fmt: skip
