"""The made-up model: a folder that onnxruntime-genai opens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.onnxruntime import tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx") / "tiny"
    tiny.write(folder)
    return folder
