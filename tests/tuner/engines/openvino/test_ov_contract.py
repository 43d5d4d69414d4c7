"""The contract on a made-up graph with the small model's tokenizer, on each backend: it compiles fast."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Setting, Workload
from tuner import engines
from tuner.engines.base import Engine
from tuner.engines.contract import EngineContract


@pytest.fixture(scope="module")
def made_up_folder(small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that a long prompt takes longer than a token."""
    import openvino as ov

    from tuner.engines.openvino import tiny

    folder = tmp_path_factory.mktemp("made-up")
    for path in small_folder.glob("*tokenizer.*"):
        shutil.copyfile(path, folder / path.name)
    graph = tiny.model(layers=2, heads=8, inner=16384, vocabulary=512)
    ov.save_model(graph, folder / "openvino_model.xml")
    return folder


class _OnEachBackend(EngineContract):
    backend: str

    @pytest.fixture
    def engine(self) -> Engine:
        return engines.get("openvino")

    @pytest.fixture
    def model(self, demo_info: ModelInfo) -> ModelInfo:
        return demo_info

    @pytest.fixture
    def model_path(self, made_up_folder: Path) -> Path:
        return made_up_folder

    @pytest.fixture
    def default(self, engine: Engine, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        default = engine.default(machine, model, workload)
        # Several threads that wait for each other by spinning collapse beside a busy neighbour.
        exact: dict[str, Setting] = {"inference_precision_hint": "f32", "kv_cache_precision": "f16"}
        changed = default.with_settings(attention_backend=self.backend, inference_num_threads=1, **exact)
        return engine.canonical(changed, model, workload)


@pytest.mark.real
class TestPaged(_OnEachBackend):
    backend = "paged"


@pytest.mark.real
class TestSdpa(_OnEachBackend):
    backend = "sdpa"
