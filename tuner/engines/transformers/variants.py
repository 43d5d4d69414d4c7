"""Which variants Transformers runs: the weights as float32, as bfloat16, and in 8 bits by three libraries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from profiles.vocabulary import ModelInfo
from tuner.engines.base import SOURCE, Recipe
from tuner.engines.conversion import HUGGINGFACE, folder_problem, huggingface_folder

F32, BF16 = "f32", "bf16"
QUANTIZED: Mapping[str, str] = {
    "int8": "torchao",
    "int8_dynamic": "torchao",
    "int8_bnb": "bitsandbytes",
}
"""Label -> the library that quantizes when the folder is opened."""

LABELS = (F32, BF16, *QUANTIZED)
MAKER = "tuner.engines.transformers.prepare"

ARCHITECTURES = (
    "falcon", "gemma2", "gemma3", "gpt2", "llama", "mistral", "nemotron", "phi3", "qwen2", "qwen2moe",
    "qwen2_moe", "qwen3", "qwen3moe", "qwen3_moe", "stablelm", "starcoder2",
)  # fmt: skip
"""By the names that GGUF files and Hugging Face folders have for them."""


def problem(model: ModelInfo) -> str | None:
    """Why a model can't be run; None when it can."""
    if model.architecture not in ARCHITECTURES:
        return (
            f"the architecture '{model.architecture}' is not among those it runs: {', '.join(ARCHITECTURES)}"
        )
    return folder_problem(model)


def recipes(model: ModelInfo) -> tuple[Recipe, ...]:
    """The weights as given, computed in float32; then bfloat16 and 8 bits."""
    first = exact(model)
    return first, _half(model, first), *(_quantized(label, model, first) for label in QUANTIZED)


def exact(model: ModelInfo) -> Recipe:
    """The folder as given, or the one that a GGUF file is converted to."""
    step = huggingface_folder(model)
    if step is None:
        return Recipe(SOURCE, estimated_bytes=4 * model.parameter_count, format=HUGGINGFACE)
    return replace(step, label=F32)


def _half(model: ModelInfo, first: Recipe) -> Recipe:
    return Recipe(
        BF16,
        (("weights", BF16),),
        2 * model.parameter_count,
        HUGGINGFACE,
        made_from=first,
        needs=("torch", "safetensors"),
    )


def _quantized(label: str, model: ModelInfo, first: Recipe) -> Recipe:
    """It takes the memory of the floats while it is opened."""
    return Recipe(
        label,
        (("weights", label),),
        4 * model.parameter_count,
        HUGGINGFACE,
        made_from=first,
        needs=(QUANTIZED[label],),
    )
