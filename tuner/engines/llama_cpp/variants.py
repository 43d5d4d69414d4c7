"""Which variants llama.cpp can make of a model: mixes of a type for the layers and one for their two ends."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

from profiles.vocabulary import ModelInfo, Setting
from tuner.engines.base import SOURCE, Recipe
from tuner.engines.conversion import gguf_file

FLOAT_TYPES = frozenset({"f16", "bf16", "f32"})


class Mix(NamedTuple):
    """A type of file, and where another is wanted the type of token embedding and output."""

    file_type: str
    ends: str | None = None

    @property
    def label(self) -> str:
        """As in tables: "q4_0", "q4_0+q8_0"."""
        return f"{self.file_type}+{self.ends}" if self.ends else self.file_type


MIXES = (
    Mix("q8_0"),
    Mix("q6_k"),
    Mix("q4_k_m", "q8_0"),
    Mix("q4_k_m"),
    Mix("q4_0", "q8_0"),
    Mix("q4_0"),
    Mix("bf16", "q8_0"),
    Mix("bf16"),
    Mix("f16"),
)
"""As a search looks at them: the most exact first, but floats, mostly the slowest, last. Why these pairs:
docs/engines.md."""

LABELS = ("f32", *(mix.label for mix in MIXES))
"""The first one is only what a Hugging Face folder may hold."""

LEAST_SHARE = 0.1
"""Of the weights in the ends: below it another type there changes hardly any bytes."""

_MAIN_TYPE = {"q4_k_m": "q4_k"}
_BITS = {"f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q6_k": 6.5625, "q4_k_m": 4.85, "q4_0": 4.5}
_BITS_SHORT_ROWS = {**_BITS, "q6_k": 8.5, "q4_k_m": 6.4}
"""Bits per weight where rows aren't multiples of 256 and k-quants fall back to blocks of 32."""


def given(model: ModelInfo) -> Recipe:
    """The file as given; of a Hugging Face folder the file that it is converted to, called by its type."""
    step = gguf_file(model)
    if step is None:
        return Recipe(SOURCE, estimated_bytes=model.file_bytes)
    return replace(step, label=main_type(model))


def recipes(model: ModelInfo) -> tuple[Recipe, ...]:
    """What is given, then every mix that is worth a look, in the order of `MIXES`."""
    return given(model), *(_recipe(mix, model) for mix in MIXES if not _is_pointless(mix, model))


def reference(model: ModelInfo) -> Recipe:
    """f16, or the file itself where its weights are not quantized."""
    return given(model) if main_type(model) in FLOAT_TYPES else _recipe(Mix("f16"), model)


def main_type(model: ModelInfo) -> str:
    """The tensor type that holds most of a model's bytes."""
    return max(model.tensor_mix, key=lambda pair: pair[1])[0]


def is_float(label: str, model: ModelInfo) -> bool:
    """Whether all matrices of a variant are floats, of which nothing can be repacked."""
    return (main_type(model) if label == SOURCE else label) in FLOAT_TYPES


def _recipe(mix: Mix, model: ModelInfo) -> Recipe:
    parameters: list[tuple[str, Setting]] = [("file_type", mix.file_type)]
    if mix.ends is not None:
        parameters += [("token_embedding_type", mix.ends), ("output_tensor_type", mix.ends)]
    first = given(model)
    return Recipe(
        mix.label,
        tuple(parameters),
        _estimated_bytes(model, mix),
        made_from=None if first.is_source else first,
    )


def _is_pointless(mix: Mix, model: ModelInfo) -> bool:
    """Whether a mix would make again what the file is, or what another mix is.

    Files of fewer bits keep their embedding in q8_0, in small models most of their bytes: such are not q8_0.
    """
    if mix.ends is not None:
        # Below 8 bits, ends of short rows are q8_0 anyway: it takes the place of k-quants that don't fit.
        falls_back = bool(model.hidden_size % 256) and mix.file_type not in FLOAT_TYPES
        return falls_back or _embedding(model) < LEAST_SHARE * model.parameter_count
    if _MAIN_TYPE.get(mix.file_type, mix.file_type) != main_type(model):
        return False
    shares = dict(model.tensor_mix)
    return mix.file_type != "q8_0" or shares["q8_0"] >= 0.9 * sum(shares.values())


def _embedding(model: ModelInfo) -> int:
    """Weights of the token embedding, which is the output too in most small models."""
    return min(model.vocabulary_size * model.hidden_size, model.parameter_count)


def _estimated_bytes(model: ModelInfo, mix: Mix) -> int:
    """The size of a made variant: vectors stay f32, the embedding keeps 6 bits or more."""
    shares = dict(model.tensor_mix)
    vectors = shares.get("f32", 0) if main_type(model) != "f32" else 0
    table = _BITS_SHORT_ROWS if model.hidden_size % 256 else _BITS
    embedding = _embedding(model)
    least = table["q8_0" if model.hidden_size % 256 else "q6_k"]
    ends = table[mix.ends] if mix.ends else max(table[mix.file_type], least)
    body = model.parameter_count - embedding
    metadata = max(model.file_bytes - sum(shares.values()), 0)
    return ceil((body * table[mix.file_type] + embedding * ends) / 8) + vectors + metadata
