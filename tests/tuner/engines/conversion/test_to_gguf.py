"""A Hugging Face folder becomes a GGUF file: names, order, sizes, tokenizer; what is unknown is refused."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.support.folders import ELEMENTS, SHAPES, write_huggingface, write_safetensors
from tuner.engines.conversion import to_gguf
from tuner.models.inspect import inspect
from tuner.models.source import model_info as info_of
from tuner.models.source import resolve


def convert(folder: Path) -> Path:
    target = folder.parent / "made.gguf"
    to_gguf.make(folder, target, {})
    return target


def tensors(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def write_tensor(folder: Path, name: str, values: np.ndarray) -> None:
    """Overwrite the zeros of a tensor."""
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[:8], "little")
    begin, end = json.loads(content[8 : 8 + length])[name]["data_offsets"]
    content[8 + length + begin : 8 + length + end] = values.astype(np.float32).tobytes()
    path.write_bytes(content)


def test_the_file_describes_the_same_model(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m")
    expected = info_of(resolve(str(folder)), cache=tmp_path)
    made = inspect([convert(folder)], name="m")
    assert made.parameter_count == ELEMENTS
    for name in (
        "architecture", "layer_count", "hidden_size", "head_count", "kv_head_count", "key_length",
        "vocabulary_size", "context_length", "tensor_mix", "has_chat_template", "has_tokenizer",
    ):  # fmt: skip
        assert getattr(made, name) == getattr(expected, name), name


def test_rows_of_queries_are_interleaved_within_each_head(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m")
    rows = np.repeat(np.arange(64, dtype=np.float32)[:, None], 64, axis=1)
    write_tensor(folder, "model.layers.0.self_attn.q_proj.weight", rows)
    found = tensors(convert(folder))["blk.0.attn_q.weight"][:, 0]
    assert found[:6].tolist() == [0, 16, 1, 17, 2, 18]
    assert found[32:36].tolist() == [32, 48, 33, 49]


def test_gemma_stores_the_scale_of_a_norm_less_one(tmp_path: Path) -> None:
    folder = write_huggingface(
        tmp_path / "m",
        model_type="gemma3_text",
        architectures=["Gemma3ForCausalLM"],
        sliding_window=16,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6}},
    )
    path = convert(folder)
    assert set(tensors(path)["output_norm.weight"].tolist()) == {1.0}
    assert set(tensors(path)["blk.0.attn_q.weight"].ravel().tolist()) == {0.0}
    made = inspect([path], name="m")
    assert (made.architecture, made.sliding_window) == ("gemma3", 16)


def test_brain_floats_stay_what_they_are(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m")
    write_safetensors(folder / "model.safetensors", SHAPES, kind="BF16")
    made = inspect([convert(folder)], name="m")
    vectors = 3 * 64
    assert made.tensor_mix == (("bf16", 2 * (ELEMENTS - vectors)), ("f32", 4 * vectors))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "qwen3"}, "model_type is qwen3; known are llama, gemma3_text"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope scaling .*llama3.* is not converted"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope scaling yarn is not converted"),
    ],
)
def test_what_it_does_not_know_is_refused(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    folder = write_huggingface(tmp_path / "m", **changes)
    with pytest.raises(ValueError, match=reason):
        convert(folder)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("model", {"type": "WordPiece", "vocab": {}}, "the tokenizer is WordPiece; known is BPE"),
        ("pre_tokenizer", {"type": "Split"}, r"cuts text by \['Split'\], which is not converted"),
    ],
)
def test_a_tokenizer_that_llama_cpp_would_read_wrong_is_refused(
    tmp_path: Path, key: str, value: object, reason: str
) -> None:
    folder = write_huggingface(tmp_path / "m")
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ValueError, match=reason):
        convert(folder)
