"""A made-up model as an OpenVINO graph with state, to see that a build computes here."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as ops

HEAD_SIZE = 32


def model(*, layers: int = 1, heads: int = 2, inner: int = 128, vocabulary: int = 96) -> ov.Model:
    """Inputs and state as those of a converted language model; the weights are always the same noise."""
    random = np.random.default_rng(0)
    width = heads * HEAD_SIZE

    def matrix(rows: int, columns: int) -> Any:
        return ops.constant(random.normal(0, columns**-0.5, (rows, columns)).astype(np.float32))

    def projected(states: Any, rows: int, columns: int = width) -> Any:
        return ops.matmul(states, matrix(rows, columns), False, True)

    names = ("input_ids", "attention_mask", "position_ids")
    tokens, mask, positions = (ops.parameter([-1, -1], np.int64, name=name) for name in names)
    beams = ops.parameter([-1], np.int32, name="beam_idx")
    inputs = [tokens, mask, positions, beams]
    for one in inputs:
        one.output(0).set_names({one.get_friendly_name()})
    place = ops.sin(ops.unsqueeze(ops.convert(positions, "f32"), _numbers(-1)))
    blocked = ops.multiply(ops.subtract(ops.convert(mask, "f32"), _real(1.0)), _real(1e4))
    blocked = ops.unsqueeze(blocked, _numbers(1, 2))
    hidden = ops.add(ops.gather(matrix(vocabulary, width), tokens, ops.constant(0, np.int64)), place)
    kept: list[Any] = []
    for layer in range(layers):
        query, key, value = (_heads(projected(hidden, width), heads) for _ in range(3))
        key, keep_key = _state(f"past_key_values.{layer}.key", key, heads, tokens, beams)
        value, keep_value = _state(f"past_key_values.{layer}.value", value, heads, tokens, beams)
        kept += [keep_key, keep_value]
        attended = ops.scaled_dot_product_attention(query, key, value, blocked)
        joined = ops.reshape(ops.transpose(attended, _numbers(0, 2, 1, 3)), _numbers(0, 0, width), True)
        hidden = ops.tanh(ops.add(hidden, joined))
        hidden = ops.add(hidden, projected(ops.relu(projected(hidden, inner)), width, inner))
    logits = projected(hidden, vocabulary)
    logits.output(0).set_names({"logits"})
    return ov.Model([ops.result(logits)], kept, inputs, "tiny")


def _heads(states: Any, heads: int) -> Any:
    split = ops.reshape(states, _numbers(0, 0, heads, HEAD_SIZE), True)
    return ops.transpose(split, _numbers(0, 2, 1, 3))


def _state(name: str, new: Any, heads: int, tokens: Any, beams: Any) -> tuple[Any, Any]:
    """What is kept of earlier calls with what is new after it, and the node that keeps both."""
    first = ops.constant(0, np.int64)
    batch = ops.gather(ops.shape_of(tokens), _numbers(0), first)
    empty = ops.broadcast(_real(0.0), ops.concat([batch, _numbers(heads, 0, HEAD_SIZE)], 0))
    kept = ops.read_value(empty, name, np.float32, [-1, heads, -1, HEAD_SIZE])
    both = ops.concat([ops.gather(kept, beams, first), new], 2)
    return both, ops.assign(both, name)


def _numbers(*values: int) -> Any:
    return ops.constant(list(values), np.int64)


def _real(value: float) -> Any:
    return ops.constant(value, np.float32)
