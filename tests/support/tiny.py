"""A GGUF file of a few kilobytes: enough for the simulated engine, which reads its header only."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

KEYS = {
    "block_count": 1,
    "context_length": 8192,
    "embedding_length": 64,
    "feed_forward_length": 64,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "vocab_size": 256,
}


def write_tiny_model(path: Path, *, weight: float = 0.02) -> Path:
    """A llama of one layer, all of its weights alike; returns the path."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in KEYS.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_string("tokenizer.ggml.model", "none")
    writer.add_tensor("token_embd.weight", np.full((256, 64), weight, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
