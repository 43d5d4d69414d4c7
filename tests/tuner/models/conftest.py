"""Tiny GGUF files: a llama of one layer with f32 weights, and raw headers byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

MakeGguf = Callable[..., Path]

DEFAULTS: Mapping[str, Any] = {
    "block_count": 1,
    "context_length": 128,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "vocab_size": 40,
}


@pytest.fixture
def make_gguf(tmp_path: Path) -> MakeGguf:
    """Writes a loadable model; keywords change keys of the architecture, `extra` adds any."""

    def make(
        name: str = "tiny.gguf",
        *,
        architecture: str = "llama",
        extra: Mapping[str, Any] | None = None,
        tensors: bool = True,
        **changes: Any,
    ) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        keys = {
            f"{architecture}.{key.replace('__', '.')}": value
            for key, value in {**DEFAULTS, **changes}.items()
        }
        for key, value in {**keys, "tokenizer.ggml.model": "none", **(extra or {})}.items():
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            else:
                writer.add_array(key, value)
        if tensors:
            for tensor, shape in _shapes().items():
                writer.add_tensor(tensor, np.full(shape, 0.02, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


def _shapes() -> dict[str, tuple[int, ...]]:
    block = "blk.0."
    return {
        "token_embd.weight": (40, 64),
        "output_norm.weight": (64,),
        block + "attn_norm.weight": (64,),
        block + "attn_q.weight": (64, 64),
        block + "attn_k.weight": (32, 64),
        block + "attn_v.weight": (32, 64),
        block + "attn_output.weight": (64, 64),
        block + "ffn_norm.weight": (64,),
        block + "ffn_gate.weight": (96, 64),
        block + "ffn_up.weight": (96, 64),
        block + "ffn_down.weight": (64, 96),
    }
