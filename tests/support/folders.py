"""Model folders of a few kilobytes: Hugging Face, ONNX Runtime GenAI, OpenVINO."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tuner.engines.pieces import byte_characters

CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 40,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
SHAPES = {
    "model.embed_tokens.weight": (40, 64),
    "model.norm.weight": (64,),
    "model.layers.0.input_layernorm.weight": (64,),
    "model.layers.0.post_attention_layernorm.weight": (64,),
    "model.layers.0.self_attn.q_proj.weight": (64, 64),
    "model.layers.0.self_attn.k_proj.weight": (32, 64),
    "model.layers.0.self_attn.v_proj.weight": (32, 64),
    "model.layers.0.self_attn.o_proj.weight": (64, 64),
    "model.layers.0.mlp.gate_proj.weight": (96, 64),
    "model.layers.0.mlp.up_proj.weight": (96, 64),
    "model.layers.0.mlp.down_proj.weight": (64, 96),
}
ELEMENTS = 40 * 64 + 3 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64


def write_safetensors(path: Path, shapes: Mapping[str, tuple[int, ...]], *, kind: str = "F32") -> None:
    """Tensors of zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        size = (4 if kind == "F32" else 2) * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def write_huggingface(folder: Path, **changes: Any) -> Path:
    """A llama of one layer; keywords change its configuration."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    write_safetensors(folder / "model.safetensors", SHAPES)
    vocabulary = {chr(33 + number): number for number in range(39)} | {"<s>": 39}
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        "added_tokens": [{"id": 39, "content": "<s>", "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "use_regex": True},
        "decoder": {"type": "ByteLevel"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    return folder


def _split(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level]}


PRE_TOKENIZERS = {
    "llama-bpe": _split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": _split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""As Llama 3's and Qwen's own folders have them, by llama.cpp's names."""

PIECES = (*byte_characters(), "12", "123", "1234", "\u0120zq", "<s>")
"""A token for each byte, three that merges make, one that none makes, and a control token."""


def write_byte_tokenizer(folder: Path, kind: str, *, ignore_merges: bool | None = None) -> None:
    """The tokenizer of PIECES, which cuts text as Llama 3's ("llama-bpe") or Qwen's ("qwen2")."""
    special = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": len(PIECES) - 1, "content": PIECES[-1], **special, "special": True}],
        "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[kind],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "ignore_merges": kind == "llama-bpe" if ignore_merges is None else ignore_merges,
            "vocab": {piece: number for number, piece in enumerate(PIECES[:-1])},
            "merges": [["1", "2"], ["12", "3"], ["123", "4"]],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": PIECES[-1],
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration))


def write_byte_folder(folder: Path, kind: str) -> Path:
    """A llama of one layer with the tokenizer of PIECES, and a row of the embedding for each of them."""
    write_huggingface(folder, vocab_size=len(PIECES))
    shapes = {**SHAPES, "model.embed_tokens.weight": (len(PIECES), 64)}
    write_safetensors(folder / "model.safetensors", shapes)
    write_byte_tokenizer(folder, kind)
    return folder


def write_random_folder(folder: Path, kind: str, **changes: Any) -> Path:
    """A llama of two layers that prefers some answers, with the tokenizer of PIECES.

    Keywords change its configuration.
    """
    size, inner, kept = 256, 768, 128
    attention = {
        "q_proj": (size, size),
        "k_proj": (kept, size),
        "v_proj": (kept, size),
        "o_proj": (size, size),
    }
    mlp = {"gate_proj": (inner, size), "up_proj": (inner, size), "down_proj": (size, inner)}
    write_huggingface(
        folder, vocab_size=len(PIECES), hidden_size=size, intermediate_size=inner, num_attention_heads=4,
        num_key_value_heads=2, num_hidden_layers=2, max_position_embeddings=4096, **changes,
    )  # fmt: skip
    random = np.random.default_rng(0)
    tensors = {"model.embed_tokens.weight": random.normal(0, 0.3, (len(PIECES), size))}
    for layer in range(2):
        tensors |= {
            f"model.layers.{layer}.{part}.{name}.weight": random.normal(0, 1.5 * shape[1] ** -0.5, shape)
            for part, matrices in (("self_attn", attention), ("mlp", mlp))
            for name, shape in matrices.items()
        }
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = np.ones(size)
    tensors["model.norm.weight"] = np.ones(size)
    path = folder / "model.safetensors"
    write_safetensors(path, {name: values.shape for name, values in tensors.items()})
    data = b"".join(values.astype(np.float32).tobytes() for values in tensors.values())
    path.write_bytes(path.read_bytes()[: -len(data)] + data)
    write_byte_tokenizer(folder, kind)
    return folder


def write_onnx(folder: Path) -> Path:
    """What onnxruntime-genai wants to see, with a graph that only names its data."""
    folder.mkdir()
    decoder = {
        "filename": "model.onnx",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_size": 32,
    }
    model = {"type": "llama", "vocab_size": 40, "context_length": 128, "decoder": decoder}
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": {}}))
    name = b"model.onnx.data"
    (folder / "model.onnx").write_bytes(b"\x08\x0a\x0a\x08location\x12" + bytes([len(name)]) + name)
    (folder / name.decode()).write_bytes(bytes(1000))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


def write_openvino(folder: Path) -> Path:
    """A graph of one layer: a matrix, its scales, a KV cache, logits."""
    folder.mkdir()
    layers = [
        '<layer id="0" name="embedding" type="Const" version="opset1">'
        '<data element_type="u8" shape="40, 64" offset="0" size="2560" /></layer>',
        '<layer id="1" name="scales" type="Const" version="opset1">'
        '<data element_type="f16" shape="40, 1" offset="2560" size="80" /></layer>',
        *(
            f'<layer id="{2 + at}" name="cache{at}" type="ReadValue" version="opset6">'
            f'<data variable_id="{name}" variable_type="f32" variable_shape="[?,1,?,32]" /></layer>'
            for at, name in enumerate(("key", "value"))
        ),
        '<layer id="4" name="logits" type="Result" version="opset1">'
        "<input><port><dim>-1</dim><dim>-1</dim><dim>40</dim></port></input></layer>",
    ]
    graph = f'<?xml version="1.0"?><net name="m" version="11"><layers>{"".join(layers)}</layers></net>'
    (folder / "openvino_model.xml").write_text(graph)
    (folder / "openvino_model.bin").write_bytes(bytes(2640))
    for part in ("tokenizer", "detokenizer"):
        (folder / f"openvino_{part}.xml").write_text(
            "<net><rt_info><chat_template value='x' /></rt_info></net>"
        )
        (folder / f"openvino_{part}.bin").write_bytes(b"")
    return folder
