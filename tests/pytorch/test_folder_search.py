"""A Hugging Face folder all the way: searched by two engines, shown, exported, served."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles.vocabulary import Workload
from tests.support.flow import Flow
from tests.support.folders import write_random_folder
from tests.support.lives import show_export_and_serve
from tuner.home import Home

pytestmark = [pytest.mark.torch, pytest.mark.real]


def test_a_hugging_face_folder_is_searched_and_served(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Transformers runs it as it is and is the baseline; llama.cpp runs the file that it is converted to."""
    folder = write_random_folder(tmp_path / "theirs", "llama-bpe")
    flow = Flow(Home(home), folder)
    document = flow.search(
        engines=("transformers", "llama_cpp"), variants=("source", "f32"), workload=Workload("tiny", 24, 8),
        trials=4, budget_s=120.0, pairs=1,
    )  # fmt: skip
    baseline = document["baseline"]
    assert (baseline["engine"], baseline["variant"]) == ("transformers", "source")
    assert document["reference"]["engine"] == "transformers"
    made = next(one["best"] for one in document["engines"] if one["engine"] == "llama_cpp")
    assert made["variant"] == "f32"
    # The same weights by another implementation, on the same text in the same tokens.
    assert made["metrics"]["kl_divergence"] <= 0.002
    assert made["metrics"]["top1_agreement"] >= 0.995
    show_export_and_serve(flow, document, capsys)
