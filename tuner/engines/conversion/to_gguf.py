"""Makes a GGUF file of a Hugging Face folder: `python -P -m MODULE SOURCE TARGET PARAMETERS_JSON`.

The `gguf` package writes the file and knows the tensors' names; what is particular to an architecture, as
llama.cpp's own converter has it, is here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tuner.engines.conversion import child, gguf_vocabulary, rotation

Array = npt.NDArray[Any]

_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_KINDS = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
}


def make(source: Path, target: Path, parameters: Mapping[str, Any]) -> None:
    """Write weights in their own types, configuration and tokenizer; ValueError for what it does not know."""
    del parameters
    config = json.loads((source / "config.json").read_text())
    kind = config["model_type"]
    if kind not in _KINDS:
        raise ValueError(f"model_type is {kind}; known are {', '.join(_KINDS)}")
    architecture = _KINDS[kind]
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[architecture])
    _add_configuration(writer, kind, config)
    gguf_vocabulary.add(writer, source, config["vocab_size"])
    for path in sorted(source.glob("*.safetensors")):
        for name, tensor, is_bf16 in _tensors(path):
            _add_tensor(writer, names, config, name, tensor, is_bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_configuration(writer: gguf.GGUFWriter, kind: str, config: Mapping[str, Any]) -> None:
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(config["vocab_size"])
    _add_rotation(writer, kind, config, head)
    if kind == "gemma3_text":
        writer.add_sliding_window(config["sliding_window"])
        if config.get("attn_logit_softcapping") or config.get("final_logit_softcapping"):
            raise ValueError("softcapping is not converted for gemma3")
    elif config.get("use_sliding_window"):
        raise ValueError(f"use_sliding_window is not converted for {kind}")


def _add_rotation(writer: gguf.GGUFWriter, kind: str, config: Mapping[str, Any], head: int) -> None:
    """How positions rotate queries and keys, in the words of old and of new configurations."""
    rope = config.get("rope_parameters") or {}
    # Layers with a window have their own frequencies, which llama.cpp knows by itself.
    rope = {**(config.get("rope_scaling") or {}), **rope.get("full_attention", rope)}
    base = float(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    writer.add_rope_freq_base(base)
    scaling = rope.get("rope_type", rope.get("type", "default"))
    if (kind, scaling) == ("llama", "llama3"):
        writer.add_tensor(rotation.TENSOR, rotation.llama3_factors(rope, base, head))
    elif scaling != "default":
        raise ValueError(f"rope scaling {scaling} is not converted for {kind}; known is llama3 of llama")


def _add_tensor(
    writer: gguf.GGUFWriter,
    names: gguf.TensorNameMap,
    config: Mapping[str, Any],
    name: str,
    tensor: Array,
    is_bf16: bool,
) -> None:
    if name == "lm_head.weight" and config.get("tie_word_embeddings"):
        return
    known = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if known is None:
        raise ValueError(f"tensor {name} has no name in GGUF files")
    if config["model_type"] == "llama":
        tensor = _interleaved(name, tensor, config)
    if tensor.ndim == 1:
        # llama.cpp computes vectors in float32 only.
        vector = (tensor.astype(np.uint32) << 16).view(np.float32) if is_bf16 else tensor.astype(np.float32)
        # Gemma stores the scale of a norm less one.
        shift = config["model_type"] == "gemma3_text" and name.endswith("norm.weight")
        writer.add_tensor(known, vector + np.float32(1) if shift else vector)
    elif is_bf16:
        writer.add_tensor(known, tensor.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(known, tensor)


def _interleaved(name: str, tensor: Array, config: Mapping[str, Any]) -> Array:
    """Queries and keys in llama.cpp's order: it rotates neighbours where Transformers rotates halves."""
    heads = config["num_attention_heads"]
    if name.endswith(("k_proj.weight", "k_proj.bias")):
        heads = config.get("num_key_value_heads") or heads
    elif not name.endswith(("q_proj.weight", "q_proj.bias")):
        return tensor
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(tensor.shape)


def _tensors(path: Path) -> Iterator[tuple[str, Array, bool]]:
    """Name, values, and whether these are the bits of bfloat16, which numpy does not know."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    data = np.memmap(path, np.uint8, "r", offset=8 + length)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _DTYPES:
            raise ValueError(f"tensor {name} is {entry['dtype']}; known are {', '.join(_DTYPES)}")
        begin, end = entry["data_offsets"]
        values = data[begin:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        yield name, values, entry["dtype"] == "BF16"


if __name__ == "__main__":
    raise SystemExit(child.run(make))
