"""Which variants ONNX Runtime can run of a model, and how each is made."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

from profiles.vocabulary import ModelInfo, Setting
from tuner.engines import conversion
from tuner.engines.base import SOURCE, Recipe

BUILDER = "tuner.engines.onnxruntime.builder"
QUANTIZER = "tuner.engines.onnxruntime.quantize"
ALL_POSITIONS = "model_all_positions.onnx"
"""Beside a made model.onnx, whose logits are the last token's: the same graph with those of every token."""

FULL, DYNAMIC, MIXED = "fp32", "int8", "int8_mixed"
OUTLYING = "down_proj"
"""The matrices whose activations have the outliers (Dettmers et al. 2022, LLM.int8(), section 3)."""
ARCHITECTURES = (
    "ernie4_5", "gemma", "gemma2", "gemma3", "granite", "internlm2", "llama", "mistral", "nemotron", "olmo",
    "phi", "phi3", "qwen2", "qwen3", "smollm3",
)  # fmt: skip
"""What onnxruntime-genai's builder has a graph for, by GGUF's names."""

_BUILDER_NEEDS = ("onnxruntime-genai", "onnx", "onnx-ir", "torch", "transformers")


class Blocks(NamedTuple):
    """Weights of `bits` in blocks of `block_size` along the rows, one scale each (MatMulNBits).

    `accuracy_level` says what activations are rounded to: 4 is 8-bit integers in the weights' blocks, 1 is
    none. `algorithm` and `head_bits` decide how weights are rounded, and what the output layer has.
    """

    bits: int
    block_size: int
    accuracy_level: int
    algorithm: str = "default"
    head_bits: int | None = None

    @property
    def label(self) -> str:
        """As in tables: "int4_b32", "int4_b32_a1"."""
        level = "" if self.accuracy_level == 4 else f"_a{self.accuracy_level}"
        return f"int{self.bits}_b{self.block_size}{level}"

    @property
    def parameters(self) -> tuple[tuple[str, Setting], ...]:
        """The builder's options."""
        found: list[tuple[str, Setting]] = [
            ("precision", f"int{self.bits}"),
            ("block_size", self.block_size),
            ("accuracy_level", self.accuracy_level),
            ("algo_config", self.algorithm),
        ]
        if self.head_bits is not None:
            found.append(("matmul_mixed_precision", f"last_matmul:int{self.head_bits}"))
        return tuple(found)


BLOCKS = (
    Blocks(8, 32, 4),
    Blocks(4, 32, 4, "k_quant", 8),
    Blocks(4, 128, 4, "k_quant", 8),
)
"""From the most to the least exact; why these: docs/engines.md."""

LABELS = (FULL, DYNAMIC, MIXED, *(blocks.label for blocks in BLOCKS))


def problem(model: ModelInfo) -> str | None:
    """Why no variant can be had of a model; None where one can."""
    if model.format == "onnx":
        return None
    if model.architecture not in ARCHITECTURES:
        return (
            f"onnxruntime-genai has no graph for the architecture '{model.architecture}': known are"
            f" {', '.join(ARCHITECTURES)}"
        )
    return conversion.folder_problem(model)


def recipes(model: ModelInfo) -> tuple[Recipe, ...]:
    """A folder as given; else what can be made, from the most to the least exact."""
    if model.format == "onnx":
        return (Recipe(SOURCE, estimated_bytes=model.file_bytes, format="onnx"),)
    full = Recipe(
        FULL,
        (("precision", FULL),),
        4 * model.parameter_count,
        "onnx",
        made_from=conversion.huggingface_folder(model),
        needs=_BUILDER_NEEDS,
    )
    dynamic = Recipe(
        DYNAMIC,
        (("weight_type", "int8"),),
        # The embedding stays in floats.
        model.parameter_count + 4 * _embedding(model),
        "onnx",
        made_from=full,
        maker=QUANTIZER,
        needs=("onnxruntime", "onnx", "onnx-ir"),
    )
    mixed = replace(dynamic, label=MIXED, parameters=(*dynamic.parameters, ("in_blocks", OUTLYING)))
    return full, dynamic, mixed, *(_blockwise(blocks, model) for blocks in BLOCKS if _fits(blocks, model))


def _fits(blocks: Blocks, model: ModelInfo) -> bool:
    """Whether the builder can write such blocks of a model's matrices.

    k_quant packs two zero points of 4 bits into a byte, so it takes an even number of blocks in each row
    (make_matmul_weight_only_node in ONNX Runtime 1.32). Not known here is the feed-forward's own size.
    """
    if blocks.algorithm != "k_quant" or blocks.bits != 4:
        return True
    rows = (model.hidden_size, model.head_count * model.value_length)
    return all(ceil(length / blocks.block_size) % 2 == 0 for length in rows)


def _blockwise(blocks: Blocks, model: ModelInfo) -> Recipe:
    # Beside each block its scale, a float of 32 bits.
    bits = blocks.bits + 32 / blocks.block_size
    size = ceil(model.parameter_count * bits / 8) + 4 * _embedding(model)
    return Recipe(
        blocks.label,
        blocks.parameters,
        size,
        "onnx",
        made_from=conversion.huggingface_folder(model),
        needs=_BUILDER_NEEDS,
    )


def _embedding(model: ModelInfo) -> int:
    return min(model.vocabulary_size * model.hidden_size, model.parameter_count)
