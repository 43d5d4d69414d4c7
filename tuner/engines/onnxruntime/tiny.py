"""A made-up ONNX GenAI model of a megabyte, written without onnx or torch."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path

from tuner.engines.onnxruntime import protobuf
from tuner.engines.onnxruntime.graphs import PRUNING
from tuner.engines.onnxruntime.protobuf import FLOAT, INT32, INT64, node, tensor, value
from tuner.engines.pieces import byte_characters

HIDDEN, FEED_FORWARD, HEADS, HEAD_SIZE = 32, 2048, 2, 16
CONTEXT = 8192
BYTES = 256
END = BYTES
VOCABULARY = BYTES + 1
"""A token for each byte, and one that ends a text."""

_CONTRIB = "com.microsoft"
_GATHER, _UNSQUEEZE = PRUNING
_TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: "


def write(folder: Path, *, last_only: bool = False) -> None:
    """Fill a folder with what onnxruntime-genai opens: a model of one layer, tokenizer, configuration.

    With `last_only` it has logits of the last token only, by nodes that are named as its builder names them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(_model(last_only))
    for name, document in (
        ("genai_config.json", _configuration()),
        ("tokenizer.json", _tokenizer()),
        ("tokenizer_config.json", _tokenizer_configuration()),
    ):
        (folder / name).write_text(json.dumps(document))


def _model(last_only: bool) -> bytes:
    past = [f"past_key_values.0.{name}" for name in ("key", "value")]
    present = [f"present.0.{name}" for name in ("key", "value")]
    inputs = [
        value("input_ids", INT64, ("batch", "new")),
        value("attention_mask", INT64, ("batch", "total")),
        *(value(name, FLOAT, ("batch", HEADS, "past", HEAD_SIZE)) for name in past),
    ]
    outputs = [
        value("logits", FLOAT, ("batch", 1 if last_only else "new", VOCABULARY)),
        *(value(name, FLOAT, ("batch", HEADS, "total", HEAD_SIZE)) for name in present),
    ]
    graph = protobuf.graph(_nodes(past, present, last_only), _weights(last_only), inputs, outputs)
    return protobuf.model(graph, opset=17, domains={_CONTRIB: 1})


def _nodes(past: list[str], present: list[str], last_only: bool) -> Iterator[bytes]:
    yield node("Gather", ["embedding", "input_ids"], ["x0"])
    yield node("ReduceSum", ["attention_mask", "axis"], ["lengths"], keepdims=0)
    yield node("Sub", ["lengths", "one"], ["last"])
    yield node("Cast", ["last"], ["last32"], to=INT32)
    yield node("Shape", ["attention_mask"], ["sizes"])
    yield node("Gather", ["sizes", "index"], ["total"], axis=0)
    yield node("Cast", ["total"], ["total32"], to=INT32)
    yield node("SimplifiedLayerNormalization", ["x0", "norm"], ["n0"], epsilon=1e-5, axis=-1)
    for name in ("q", "k", "v"):
        yield node("MatMul", ["n0", f"{name}_weight"], [name])
    yield node(
        "GroupQueryAttention",
        ["q", "k", "v", *past, "last32", "total32", "cosines", "sines"],
        ["attended", *present],
        _CONTRIB,
        num_heads=HEADS,
        kv_num_heads=HEADS,
        do_rotary=1,
    )
    yield node("MatMul", ["attended", "o_weight"], ["o"])
    yield node("Add", ["x0", "o"], ["x1"])
    yield node("SimplifiedLayerNormalization", ["x1", "norm"], ["n1"], epsilon=1e-5, axis=-1)
    yield node("MatMul", ["n1", "up_weight"], ["up"])
    yield node("Sigmoid", ["up"], ["gate"])
    yield node("Mul", ["up", "gate"], ["active"])
    yield node("MatMul", ["active", "down_weight"], ["down"])
    yield node("Add", ["x1", "down"], ["x2"])
    yield node("SimplifiedLayerNormalization", ["x2", "norm"], ["n2"], epsilon=1e-5, axis=-1)
    if last_only:
        yield node("Gather", ["n2", "minus_one"], [_GATHER], axis=1)
        yield node("Unsqueeze", [_GATHER, "axis"], [_UNSQUEEZE])
    yield node("MatMul", [_UNSQUEEZE if last_only else "n2", "output_weight"], ["logits"])


def _weights(last_only: bool) -> Iterator[bytes]:
    matrices = {
        "embedding": (VOCABULARY, HIDDEN),
        "output_weight": (HIDDEN, VOCABULARY),
        **{f"{name}_weight": (HIDDEN, HIDDEN) for name in "qkvo"},
        "up_weight": (HIDDEN, FEED_FORWARD),
        "down_weight": (FEED_FORWARD, HIDDEN),
    }
    for number, (name, shape) in enumerate(matrices.items()):
        yield _floats(name, shape, [math.sin(1 + i * (i + number)) for i in range(math.prod(shape))])
    yield _floats("norm", (HIDDEN,), [1.0] * HIDDEN)
    half = HEAD_SIZE // 2
    angles = [place / 10000 ** (i / half) for place in range(CONTEXT) for i in range(half)]
    yield _floats("cosines", (CONTEXT, half), [math.cos(angle) for angle in angles])
    yield _floats("sines", (CONTEXT, half), [math.sin(angle) for angle in angles])
    yield tensor("axis", (1,), INT64, struct.pack("<q", 1))
    yield tensor("one", (1,), INT64, struct.pack("<q", 1))
    yield tensor("index", (), INT64, struct.pack("<q", 1))
    if last_only:
        yield tensor("minus_one", (), INT64, struct.pack("<q", -1))


def _floats(name: str, shape: tuple[int, ...], values: list[float]) -> bytes:
    return tensor(name, shape, FLOAT, struct.pack(f"<{len(values)}f", *values))


def _configuration() -> dict[str, object]:
    return {
        "model": {
            "bos_token_id": END,
            "eos_token_id": END,
            "pad_token_id": END,
            "context_length": CONTEXT,
            "type": "llama",
            "vocab_size": VOCABULARY,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": HEAD_SIZE,
                "hidden_size": HIDDEN,
                "num_attention_heads": HEADS,
                "num_key_value_heads": HEADS,
                "num_hidden_layers": 1,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"max_length": CONTEXT, "past_present_share_buffer": True},
    }


def _tokenizer() -> dict[str, object]:
    end = {"id": END, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {character: number for number, character in enumerate(byte_characters())}
    return {
        "version": "1.0",
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "unk_token": None, "vocab": vocabulary, "merges": []},
    }


def _tokenizer_configuration() -> dict[str, object]:
    return {
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": False,
        "eos_token": "<end>",
        "chat_template": _TEMPLATE,
    }
