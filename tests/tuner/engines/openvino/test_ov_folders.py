"""Hugging Face folders all the way to OpenVINO: weights in types that its reader lacks, text cut alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.folders import PIECES, SHAPES, write_byte_folder, write_safetensors
from tuner.engines.conversion import to_gguf
from tuner.engines.openvino import recipes, widen
from tuner.engines.openvino.scorer import OpenVinoScorer

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [("llama-bpe", "F32", ["123", "4", "!"]), ("qwen2", "BF16", ["1", "2", "3", "4", "!"])],
)
def test_a_folder_runs_and_cuts_text_as_llama_cpp_does(
    kind: str, dtype: str, expected: list[str], tmp_path: Path
) -> None:
    folder = write_byte_folder(tmp_path / "folder", kind)
    shapes = {**SHAPES, "model.embed_tokens.weight": (len(PIECES), 64)}
    write_safetensors(folder / "model.safetensors", shapes, kind=dtype)
    to_gguf.make(folder, tmp_path / "made.gguf", {})
    widen.make(tmp_path / "made.gguf", tmp_path / "f16.gguf", {})
    recipes.make(tmp_path / "f16.gguf", tmp_path / "made", {"weights": "given"})
    scorer = OpenVinoScorer()
    scorer.load(tmp_path / "made", {"inference_num_threads": 1, "inference_precision_hint": "f32"})
    tokens = scorer.tokenize("1234!")
    assert [PIECES[token] for token in tokens] == expected
    scorer.start()
    assert scorer.feed(tokens).shape == (len(tokens), len(PIECES))
    scorer.close()
