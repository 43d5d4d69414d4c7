"""Models of a published shape with random weights: as fast as the real ones, without a download."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import ModelFileError


@dataclass(frozen=True)
class Shape:
    """What decides a dense decoder's speed; sizes in elements, `context_length` and window in tokens.

    `attention_norm` norms queries and keys, `sandwich_norms` the outputs of attention and feed-forward.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    context_length: int
    rope_base: float
    attention_bias: bool = False
    attention_norm: bool = False
    sandwich_norms: bool = False
    sliding_window: int | None = None


SHAPES = {
    "qwen2.5-0.5b": Shape("qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6, attention_bias=True),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6, attention_norm=True),
    "llama-3.2-1b": Shape("llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5),
    "smollm2-360m": Shape("llama", 32, 960, 15, 5, 64, 2560, 49152, 8192, 1e5),
    "gemma-3-270m": Shape(
        "gemma3", 18, 640, 4, 1, 256, 2048, 262144, 32768, 1e6,
        attention_norm=True, sandwich_norms=True, sliding_window=512,
    ),
}  # fmt: skip
"""As in the models' own published configurations; all have tied embeddings."""

SPARE_BYTES = 64 << 20
"""Left free on the disk beside the new file."""

LEAST_WEIGHT = 1e-4
"""In magnitude: zeros and subnormal numbers (below 6.1e-5 in f16) can be computed at another speed."""


def shape_file(name: str, cache: Path) -> Path:
    """The f16 file of a shape under `cache`, written when it isn't there.

    Raises ModelFileError for an unknown name, without room on the disk, and without the package gguf.
    """
    if name not in SHAPES:
        raise ModelFileError(f"unknown shape '{name}'; known are {', '.join(SHAPES)}")
    path = cache / "shapes" / f"{name}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_room(name, path.parent)
        partial = path.with_name(f"{name}.{os.getpid()}.partial")
        try:
            write_shape(SHAPES[name], name, partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def _check_room(name: str, folder: Path) -> None:
    needed = sum(math.prod(size) * (4 if len(size) == 1 else 2) for _tensor, size in _tensors(SHAPES[name]))
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE_BYTES:
        raise ModelFileError(
            f"no room for shape:{name} of {needed >> 20} MiB: the disk of {folder} has {free >> 20} MiB free"
        )


def write_shape(shape: Shape, name: str, path: Path) -> None:
    """Write a GGUF file of this shape: f16 matrices from one seeded block, no tokenizer."""
    try:
        import gguf
    except ImportError:
        raise ModelFileError(f"shape:{name} needs the package gguf; pip install gguf") from None
    import numpy as np

    writer: Any = gguf.GGUFWriter(path, shape.architecture)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-6)
    if shape.sliding_window is not None:
        writer.add_sliding_window(shape.sliding_window)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_tokenizer_model("none")
    tensors = list(_tensors(shape))
    for tensor, size in tensors:
        dtype = np.dtype(np.float32 if len(size) == 1 else np.float16)
        count = int(np.prod(size))
        writer.add_tensor_info(tensor, size, dtype, count * dtype.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    # One block, repeated: what a weight is doesn't matter to the speed, drawing 10^9 of them would.
    drawn = np.random.default_rng(0).normal(0.0, 0.02, 1 << 20)
    block = np.copysign(np.maximum(np.abs(drawn), LEAST_WEIGHT), drawn).astype(np.float16)
    for _tensor, size in tensors:
        values = np.ones(size, np.float32) if len(size) == 1 else np.resize(block, size)
        writer.write_tensor_data(values)
    writer.close()


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and sizes in numpy's order (rows, columns)."""
    hidden, keys = shape.hidden, shape.kv_heads * shape.head_size
    queries = shape.heads * shape.head_size
    yield "token_embd.weight", (shape.vocabulary, hidden)
    yield "output_norm.weight", (hidden,)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", (hidden,)
        for part, rows in (("q", queries), ("k", keys), ("v", keys)):
            yield f"{block}attn_{part}.weight", (rows, hidden)
            if shape.attention_bias:
                yield f"{block}attn_{part}.bias", (rows,)
        if shape.attention_norm:
            yield block + "attn_q_norm.weight", (shape.head_size,)
            yield block + "attn_k_norm.weight", (shape.head_size,)
        yield block + "attn_output.weight", (hidden, queries)
        if shape.sandwich_norms:
            yield block + "post_attention_norm.weight", (hidden,)
            yield block + "post_ffw_norm.weight", (hidden,)
        yield block + "ffn_norm.weight", (hidden,)
        yield block + "ffn_gate.weight", (shape.feed_forward, hidden)
        yield block + "ffn_up.weight", (shape.feed_forward, hidden)
        yield block + "ffn_down.weight", (hidden, shape.feed_forward)
