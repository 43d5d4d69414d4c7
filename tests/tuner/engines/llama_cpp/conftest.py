"""The demo model, as it is and as f16."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import builds


@pytest.fixture(scope="session")
def demo_model() -> Path:
    return builds.demo_model()


@pytest.fixture(scope="session")
def f16_model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tuner.engines.llama_cpp import recipes

    target = tmp_path_factory.mktemp("models") / "demo-f16.gguf"
    recipes.make(demo_model, target, {"file_type": "f16"})
    return target
