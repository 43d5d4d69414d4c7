"""A folder that is run as it is: searched, shown, exported, served, and nothing of it takes PyTorch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profiles.vocabulary import Workload
from tests.support.flow import Flow
from tests.support.lives import show_export_and_serve
from tuner.home import Home

pytestmark = pytest.mark.real


def test_m10_an_onnx_genai_folder_is_searched_and_served_without_torch(
    home: Path,
    tiny_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A module of this name ahead of the real one ends every process that imports it.
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    # A file in the folder stands for it.
    flow = Flow(Home(home), tiny_folder / "model.onnx")
    document = flow.search(
        engines=("onnxruntime",), workload=Workload("tiny", 24, 8), trials=2, budget_s=40.0, pairs=1
    )
    assert document["baseline"]["engine"] == "onnxruntime"
    assert document["baseline"]["variant"] == "source"
    assert document["trials"]["complete"] >= 1
    assert document["trials"]["failed"] == 0
    exported = show_export_and_serve(flow, document, capsys)
    assert exported["model"] == str(tiny_folder)
