"""An OpenVINO folder from another tool all the way: searched as it is, shown, exported, served."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from profiles.vocabulary import Workload
from tests.support.flow import Flow
from tests.support.lives import show_export_and_serve
from tuner.home import Home

pytestmark = pytest.mark.real


def test_m11_an_openvino_folder_is_searched_and_served(
    home: Path, small_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(small_folder, folder, ignore=shutil.ignore_patterns("cputune.json"))
    # A file in the folder stands for it.
    flow = Flow(Home(home), folder / "openvino_model.xml")
    document = flow.search(
        engines=("openvino",), workload=Workload("tiny", 24, 8), trials=2, budget_s=60.0, pairs=1
    )
    assert document["baseline"]["engine"] == "openvino"
    assert document["baseline"]["variant"] == "source"
    assert document["trials"]["failed"] == 0
    exported = show_export_and_serve(flow, document, capsys)
    assert exported["settings"]["kv_cache_precision"] in ("u8", "bf16", "f16", "f32")
