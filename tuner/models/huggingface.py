"""Describes a Hugging Face folder by its configuration and the checked headers of its weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from profiles.vocabulary import ModelInfo
from tuner.errors import ModelFileError
from tuner.models.folders import has_chat_template, lacking, optional, read_object, required
from tuner.models.safetensors import Tensor, read_tensors

INDEX = "model.safetensors.index.json"
GGUF_NAMES = {"gemma3_text": "gemma3"}
"""Model types that GGUF files call otherwise; engines know one name for one architecture."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model")


def inspect_folder(folder: Path, *, name: str) -> ModelInfo:
    """What the folder says of its model.

    No code of the folder is run and no pickle is read. Raises ModelFileError for weights that are missing,
    broken, pickled or quantized, and for a model that is not made to generate text.
    """
    path = folder / "config.json"
    config = read_object(path)
    check_generates(path, config)
    tensors = [tensor for file in weight_files(folder) for tensor in read_tensors(file)]
    elements = sum(tensor.elements for tensor in tensors)
    if not elements:
        raise ModelFileError(f"{folder} holds no weights")
    hidden = required(path, config, "hidden_size")
    heads = required(path, config, "num_attention_heads", hidden)
    head = optional(path, config, "head_dim", hidden // heads)
    mix: Counter[str] = Counter()
    for tensor in tensors:
        mix[tensor.type] += tensor.size_bytes
    kind = str(config.get("model_type"))
    return ModelInfo(
        name=name,
        digest="",
        format="huggingface",
        architecture=GGUF_NAMES.get(kind, kind),
        parameter_count=elements,
        layer_count=required(path, config, "num_hidden_layers", len(tensors)),
        hidden_size=hidden,
        head_count=heads,
        kv_head_count=optional(path, config, "num_key_value_heads", heads),
        key_length=head,
        value_length=head,
        vocabulary_size=_vocabulary_size(path, config, tensors),
        context_length=optional(path, config, "max_position_embeddings", 0),
        file_bytes=sum(file.stat().st_size for file in weight_files(folder)),
        tensor_mix=tuple(sorted(mix.items())),
        bits_per_weight=8 * sum(mix.values()) / elements,
        sliding_window=_sliding_window(path, config),
        has_chat_template=has_chat_template(folder),
        has_tokenizer=any((folder / file).is_file() for file in _TOKENIZERS),
    )


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a folder, those of its index where it has one.

    Raises ModelFileError that names what is missing.
    """
    if (folder / INDEX).is_file():
        mapped = read_object(folder / INDEX).get("weight_map")
        names = sorted(set(mapped.values())) if isinstance(mapped, dict) else []
        if not names or any(not isinstance(n, str) or Path(n).name != n for n in names):
            raise ModelFileError(f"{folder / INDEX} names no files of this folder in its weight_map")
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        pickled = next((p.name for pattern in ("*.bin", "*.pt", "*.pth") for p in folder.glob(pattern)), None)
        if pickled:
            raise ModelFileError(
                f"{folder} holds pickled weights ({pickled}), which can run code when they are read;"
                " save the model as safetensors"
            )
        raise ModelFileError(f"{folder} lacks the weights: there is no .safetensors file beside config.json")
    missing = list(lacking(folder, tuple(names)))
    if missing:
        raise ModelFileError(f"{folder} lacks {len(missing)} of {len(names)} weight files: {missing[0]}")
    return tuple(folder / name for name in names)


def check_generates(path: Path, config: dict[str, Any]) -> None:
    """Raises ModelFileError for the configuration of no text generator, and for that of quantized weights."""
    names = config.get("architectures")
    if not isinstance(names, list) or not any(str(name).endswith("ForCausalLM") for name in names):
        raise ModelFileError(f"{path.parent} is not a text-generation model: its architectures are {names}")
    quantized = config.get("quantization_config")
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise ModelFileError(
            f"{path.parent} is quantized already ({method}): give the folder of its float weights"
        )


def _vocabulary_size(path: Path, config: dict[str, Any], tensors: list[Tensor]) -> int:
    """As the embedding has it, which may be padded, and must not be less than the configuration says."""
    claimed = required(path, config, "vocab_size")
    rows = next((t.shape[0] for t in tensors if t.name.endswith("embed_tokens.weight") and t.shape), claimed)
    if rows < claimed:
        raise ModelFileError(f"{path}: vocab_size is {claimed}, the embedding has {rows} rows")
    return claimed


def _sliding_window(path: Path, config: dict[str, Any]) -> int | None:
    if config.get("use_sliding_window") is False or config.get("sliding_window") is None:
        return None
    return required(path, config, "sliding_window")
