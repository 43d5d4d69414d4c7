"""What a model is, by its headers; and which ones are no text generators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import ModelFileError
from tuner.models.inspect import inspect, type_map

MakeGguf = Callable[..., Path]


def test_sizes_and_shares(make_gguf: MakeGguf) -> None:
    path = make_gguf(extra={"tokenizer.ggml.model": "gpt2", "tokenizer.chat_template": "{{ x }}"})
    model = inspect([path], name="tiny", digest="abc")
    assert (model.name, model.digest, model.architecture) == ("tiny", "abc", "llama")
    assert (model.layer_count, model.hidden_size, model.head_count, model.kv_head_count) == (1, 64, 2, 1)
    assert (model.key_length, model.value_length, model.vocabulary_size) == (32, 32, 40)
    assert model.tensor_mix == (("f32", 4 * model.parameter_count),)
    assert model.bits_per_weight == 32
    assert model.file_bytes == path.stat().st_size
    assert model.has_chat_template
    assert model.has_tokenizer
    assert model.sliding_window is None


def test_e10_head_sizes_of_the_file_override_the_share(make_gguf: MakeGguf) -> None:
    model = inspect(
        [make_gguf(attention__key_length=48, attention__value_length=96, attention__sliding_window=512)],
        name="t",
    )
    assert (model.key_length, model.value_length, model.sliding_window) == (48, 96, 512)


def test_values_per_layer_count_by_their_greatest(make_gguf: MakeGguf) -> None:
    model = inspect([make_gguf(attention__head_count_kv=[1, 2, 0])], name="t")
    assert model.kv_head_count == 2


@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("bert", {}, "architecture is 'bert'"),
        ("nomic-bert", {}, "architecture is 'nomic-bert'"),
        ("llama", {"attention__causal": False}, "llama.attention.causal is false"),
        ("qwen3", {"pooling_type": 3}, "qwen3.pooling_type is 3"),
        ("llama", {"extra": {"general.type": "adapter"}}, "general.type is 'adapter'"),
    ],
)
def test_m09_other_models_are_refused(
    make_gguf: MakeGguf, architecture: str, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(ModelFileError, match="is not a text-generation model") as caught:
        inspect([make_gguf(architecture=architecture, **changes)], name="t")
    assert reason in str(caught.value)


def test_m09_a_causal_model_without_pooling_passes(make_gguf: MakeGguf) -> None:
    assert inspect([make_gguf(attention__causal=True, pooling_type=0)], name="t").layer_count == 1


@pytest.mark.parametrize("key", ["embedding_length", "attention.head_count", "block_count"])
def test_a_size_of_zero_is_named(make_gguf: MakeGguf, key: str) -> None:
    with pytest.raises(ModelFileError, match=f"llama.{key}"):
        inspect([make_gguf(**{key: 0})], name="t")


def test_no_weights(make_gguf: MakeGguf) -> None:
    with pytest.raises(ModelFileError, match="holds no weights"):
        inspect([make_gguf(tensors=False)], name="t")


def test_m05_parts_must_belong_together(make_gguf: MakeGguf) -> None:
    first = make_gguf("a.gguf", extra={"split.count": 2, "split.no": 0})
    second = make_gguf("b.gguf", extra={"split.count": 2, "split.no": 1})
    assert inspect([first, second], name="t").file_bytes == first.stat().st_size + second.stat().st_size
    with pytest.raises(ModelFileError, match="says it is part 1 of 2, but stands as part 1 of 1"):
        inspect([first], name="t")
    with pytest.raises(ModelFileError, match="says it is part 2 of 2, but stands as part 1 of 2"):
        inspect([second, first], name="t")


def test_the_type_map_names_every_tensor(make_gguf: MakeGguf) -> None:
    types = type_map([make_gguf()])
    assert len(types) == 11
    assert ("token_embd.weight", "f32") in types


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"block_count": 8_388_609}, r"llama\.block_count is 8388609, above its 11 tensors"),
        ({"attention.layer_norm_rms_epsilon": -1e-5}, r"epsilon is -9.*allowed: 0 or more"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "epsilon is nan; allowed: 0 or more"),
        ({"rope.freq_base": float("inf")}, "freq_base is inf; allowed: a finite number"),
        ({"attention.head_count": 65}, r"llama\.attention\.head_count is 65, above its 64 elements"),
    ],
)
def test_m04_numbers_that_engines_trust_are_checked(
    make_gguf: MakeGguf, changes: dict[str, float], expected: str
) -> None:
    with pytest.raises(ModelFileError, match=expected):
        inspect([make_gguf(**changes)], name="odd")
