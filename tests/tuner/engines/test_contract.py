"""The contract over the registry: every built-in engine has its class here."""

import re
from pathlib import Path

import pytest

from probes.machine import Machine, probe
from profiles.vocabulary import Config, ModelInfo, Workload
from tests.support.builds import demo_model, safe
from tuner import engines
from tuner.engines.base import Engine
from tuner.engines.contract import EngineContract


@pytest.fixture(scope="module")
def machine() -> Machine:
    return probe()


class TestSimulated(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return engines.get("simulated")

    @pytest.fixture
    def model(self) -> ModelInfo:
        return ModelInfo(
            name="tiny", digest="00", format="simulated", architecture="simulated", parameter_count=1000,
            layer_count=1, hidden_size=8, head_count=1, kv_head_count=1, key_length=8, value_length=8,
            vocabulary_size=1024, context_length=8192, file_bytes=1000, tensor_mix=(("q4_1", 1000),),
            bits_per_weight=5.0, has_chat_template=True,
        )  # fmt: skip

    @pytest.fixture
    def model_path(self, tmp_path: Path) -> Path:
        path = tmp_path / "any.file"
        path.write_bytes(b"any file is a source")
        return path


@pytest.mark.real
class TestLlamaCpp(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return engines.get("llama_cpp")

    @pytest.fixture
    def model_path(self) -> Path:
        return demo_model()

    @pytest.fixture
    def model(self, model_path: Path) -> ModelInfo:
        return ModelInfo(
            name="smollm2", digest="00", format="gguf", architecture="llama", parameter_count=134_515_008,
            layer_count=30, hidden_size=576, head_count=9, kv_head_count=3, key_length=64, value_length=64,
            vocabulary_size=49152, context_length=8192, file_bytes=model_path.stat().st_size,
            tensor_mix=(("q4_1", 66_000_000), ("q8_0", 30_000_000)), bits_per_weight=5.8,
            has_chat_template=True,
        )  # fmt: skip

    @pytest.fixture
    def default(self, engine: Engine, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        default = engine.default(machine, model, workload)
        # Several threads that wait for each other by spinning collapse beside a busy neighbour.
        threads = {"n_threads": 1, "n_threads_batch": 1}
        return default.with_settings(**safe("llama_cpp", {**default.as_dict(), **threads}))


def test_every_built_in_engine_is_under_the_contract():
    """Some have theirs elsewhere, since one process holds one native engine."""
    covered = set()
    for path in Path(__file__).parents[2].rglob("test_*.py"):
        text = path.read_text()
        if "(EngineContract)" in text:
            covered |= set(re.findall(r'engines\.get\("(\w+)"\)', text))
    assert covered >= set(engines.BUILT_IN)
