"""A Hugging Face folder becomes a GGUF file: names, order, sizes, tokenizer; what is unknown is refused."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.support.folders import (
    ELEMENTS,
    PIECES,
    SHAPES,
    write_byte_folder,
    write_byte_tokenizer,
    write_huggingface,
    write_safetensors,
)
from tuner.engines.conversion import rotation, to_gguf
from tuner.models.inspect import inspect
from tuner.models.source import model_info as info_of
from tuner.models.source import resolve

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


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


def test_llama_3_1_stretches_its_long_waves_only(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m", rope_scaling=LLAMA3)
    factors = tensors(convert(folder))["rope_freqs.weight"]
    assert factors.shape == (16,)
    # Waves of 2 pi and of 11.17 positions, and those beyond the 32 of its first context.
    assert factors[:2].tolist() == pytest.approx([1.0, 1 / ((1 - 0.6215) / 8 + 0.6215)], rel=1e-3)
    assert set(factors[3:].tolist()) == {8.0}


def test_the_factors_of_llama_3_1_say_which_parameters_they_come_from(tmp_path: Path) -> None:
    published = {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192}
    folder = write_huggingface(tmp_path / "m", rope_scaling=published, rope_theta=500000.0)
    factors = rotation.stored_factors([convert(folder)])
    assert factors is not None
    assert rotation.llama3_parameters(factors, 500000.0) == published
    with pytest.raises(ValueError, match=r"rope_freqs\.weight are not those of Llama 3\.1"):
        rotation.llama3_parameters(factors, 10000.0)


def test_qwen_has_biases_and_keeps_the_order_of_its_rows(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m", model_type="qwen2", architectures=["Qwen2ForCausalLM"])
    bias = "model.layers.0.self_attn.q_proj.bias"
    write_safetensors(folder / "model.safetensors", {**SHAPES, bias: (64,)})
    write_tensor(folder, bias, np.arange(64))
    path = convert(folder)
    assert tensors(path)["blk.0.attn_q.bias"].tolist() == list(range(64))
    assert inspect([path], name="m").architecture == "qwen2"


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama-bpe", ["123", "4", "\u0120zq"]),
        ("qwen2", ["1", "2", "3", "4", "\u0120", "z", "q"]),
    ],
)
def test_llama_cpp_cuts_text_as_the_folder_does(tmp_path: Path, kind: str, expected: list[str]) -> None:
    from tuner.engines.llama_cpp.scorer import LlamaScorer

    folder = write_byte_folder(tmp_path / "m", kind)
    path = convert(folder)
    assert gguf.GGUFReader(path).fields["tokenizer.ggml.pre"].contents() == kind
    scorer = LlamaScorer()
    scorer.load(path, {"n_threads": 1})
    try:
        assert [PIECES[token] for token in scorer.tokenize("1234 zq")] == expected
    finally:
        scorer.close()


@pytest.mark.parametrize(("kind", "ignore_merges"), [("llama-bpe", False), ("qwen2", True)])
def test_whole_words_without_merges_must_be_what_llama_cpp_takes_for_granted(
    tmp_path: Path, kind: str, ignore_merges: bool
) -> None:
    folder = write_byte_folder(tmp_path / "m", kind)
    write_byte_tokenizer(folder, kind, ignore_merges=ignore_merges)
    with pytest.raises(ValueError, match="cuts text by Split and ByteLevel in a way that is not converted"):
        convert(folder)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"normalizer": {"type": "Replace"}, "pre_tokenizer": {"type": "Split"}}, False),
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend"}]}}, True),
        ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"}}, True),
    ],
)
def test_llama_2_puts_a_space_before_a_text_and_gemma_does_not(
    tmp_path: Path, changes: dict[str, object], expected: bool
) -> None:
    folder = write_huggingface(tmp_path / "m")
    path = folder / "tokenizer.json"
    sentence_piece = {"decoder": None, "pre_tokenizer": None, **changes}
    path.write_text(json.dumps({**json.loads(path.read_text()), **sentence_piece}))
    fields = gguf.GGUFReader(convert(folder)).fields
    assert fields["tokenizer.ggml.model"].contents() == "llama"
    assert bool(fields["tokenizer.ggml.add_space_prefix"].contents()) == expected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "phi3"}, "model_type is phi3; known are llama, gemma3_text, qwen2, qwen3"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope scaling linear is not converted"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope scaling yarn is not converted for llama"),
        ({"model_type": "qwen2", "rope_scaling": LLAMA3}, "rope scaling llama3 is not converted for qwen2"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window is not converted"),
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
        ("pre_tokenizer", {"type": "Split"}, "cuts text by Split in a way that is not converted; known are"),
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
