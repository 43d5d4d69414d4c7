"""The conversions that several engines share, as recipes: each is made once for all of them."""

from __future__ import annotations

from profiles.vocabulary import ModelInfo
from tuner.engines.base import Recipe

HUGGINGFACE = "huggingface"
FROM_GGUF = (
    "falcon", "gemma2", "gemma3", "gpt2", "llama", "mistral", "nemotron", "phi3", "qwen2", "qwen2moe",
    "qwen3", "qwen3moe", "stablelm", "starcoder2",
)  # fmt: skip
"""Architectures of GGUF files that Transformers dequantizes."""

TO_GGUF = ("gemma3", "llama", "qwen2", "qwen3")
"""Architectures of Hugging Face folders that `to_gguf` writes."""

_TRANSFORMERS = ("torch", "transformers", "accelerate", "gguf", "safetensors")


def huggingface_folder(model: ModelInfo) -> Recipe | None:
    """The step to a Hugging Face folder with float32 weights; None where the source is one already."""
    if model.format == HUGGINGFACE:
        return None
    return Recipe(
        HUGGINGFACE,
        (("dtype", "float32"),),
        estimated_bytes=4 * model.parameter_count,
        format=HUGGINGFACE,
        maker="tuner.engines.conversion.from_gguf",
        needs=_TRANSFORMERS,
    )


def folder_problem(model: ModelInfo) -> str | None:
    """Why no Hugging Face folder can be had of a model; None where it can."""
    if model.format == HUGGINGFACE:
        return None
    if model.format != "gguf":
        return f"{model.format} folders can't be converted to a Hugging Face folder: only GGUF files can"
    if model.architecture not in FROM_GGUF:
        return (
            f"a GGUF file of the architecture '{model.architecture}' can't be converted to a Hugging Face"
            f" folder: known are {', '.join(FROM_GGUF)}"
        )
    return None


def gguf_file(model: ModelInfo) -> Recipe | None:
    """The step to a GGUF file in the weights' own types; None where the source is one already."""
    if model.format == "gguf":
        return None
    return Recipe(
        "gguf",
        estimated_bytes=model.file_bytes,
        maker="tuner.engines.conversion.to_gguf",
        needs=("gguf", "numpy"),
    )


def gguf_problem(model: ModelInfo) -> str | None:
    """Why no GGUF file can be had of a model; None where it can."""
    if model.format == "gguf":
        return None
    if model.format != HUGGINGFACE:
        return f"{model.format} folders can't be converted to GGUF: only Hugging Face folders can"
    if model.architecture not in TO_GGUF:
        return (
            f"a Hugging Face folder of the architecture '{model.architecture}' can't be converted to GGUF:"
            f" known are {', '.join(TO_GGUF)}"
        )
    return None
