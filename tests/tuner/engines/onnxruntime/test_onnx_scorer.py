"""The scorer on the made-up model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tuner.engines.base import EngineError
from tuner.engines.onnxruntime import tiny
from tuner.engines.onnxruntime.scorer import OnnxScorer
from tuner.measurement import scoring

pytestmark = pytest.mark.real

TEXT = "When it rains in the mountains, the rivers rise, and the valleys below wait for the water. " * 2


def opened(folder: Path) -> OnnxScorer:
    scorer = OnnxScorer()
    scorer.load(folder, {"intra_op_num_threads": 1})
    return scorer


def test_logits_do_not_depend_on_how_a_text_is_fed(tiny_folder: Path) -> None:
    scorer = opened(tiny_folder)
    tokens = scorer.tokenize(TEXT)
    scorer.start()
    at_once = scorer.feed(tokens)
    scorer.start()
    parts = [scorer.feed(tokens[begin : begin + 7]) for begin in range(0, len(tokens), 7)]
    assert at_once.shape == (len(tokens), tiny.VOCABULARY)
    assert at_once.dtype == np.float32
    np.testing.assert_allclose(np.concatenate(parts), at_once, atol=1e-4)


def test_a_graph_with_the_last_token_s_logits_is_fed_token_by_token(
    tiny_folder: Path, tmp_path: Path
) -> None:
    tiny.write(tmp_path / "last", last_only=True)
    full, last = opened(tiny_folder), opened(tmp_path / "last")
    tokens = full.tokenize(TEXT)[:80]
    for scorer in (full, last):
        scorer.start()
    np.testing.assert_allclose(last.feed(tokens), full.feed(tokens), atol=1e-4)


def test_the_same_model_has_no_distance_to_itself(tiny_folder: Path, tmp_path: Path) -> None:
    request = {
        "texts": [TEXT],
        "chat_prompts": ["Hello?"],
        "positions": 100,
        "reply_tokens": 8,
        "path": str(tmp_path / "reference.npz"),
    }
    scoring.handle("score_reference", opened(tiny_folder), request)
    found = scoring.handle("score_compare", opened(tiny_folder), {"reference": request["path"]})
    assert max(found["kl"]) < 1e-6
    assert all(found["top1"])


def test_another_tokenizer_is_noticed(tiny_folder: Path, tmp_path: Path) -> None:
    request = {
        "texts": [TEXT], "chat_prompts": [], "positions": 50, "reply_tokens": 0,
        "path": str(tmp_path / "reference.npz"),
    }  # fmt: skip
    scoring.handle("score_reference", opened(tiny_folder), request)
    folder = tmp_path / "other"
    shutil.copytree(tiny_folder, folder)
    document = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = document["model"]["vocab"]
    vocabulary["t"], vocabulary["h"] = vocabulary["h"], vocabulary["t"]
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(EngineError, match="tokenizer is not the reference's"):
        scoring.handle("score_compare", opened(folder), {"reference": request["path"]})


def test_tokens_and_texts_that_do_not_fit(tiny_folder: Path) -> None:
    scorer = opened(tiny_folder)
    scorer.start()
    with pytest.raises(EngineError, match=f"token {tiny.VOCABULARY} is outside"):
        scorer.feed([tiny.VOCABULARY])
    with pytest.raises(EngineError):
        scorer.feed([1] * 3000)
