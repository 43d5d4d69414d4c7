"""The weights in a graph: what types they have, and how they become f16."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13, passes

LEAST_ELEMENTS = 1024
"""Smaller constants are shapes and scales of nothing."""


def bytes_by_type(graph: Path) -> dict[str, int]:
    """The bytes of a graph's matrices, of their scales and of their zero points, by their type."""
    found: Counter[str] = Counter()
    for node in ov.Core().read_model(graph).get_ops():
        if node.get_type_name() == "Constant" and len(node.shape) > 1:
            found[node.get_element_type().to_string()] += node.get_byte_size()
    return dict(found)


def dequantize(source: Path, target: Path) -> None:
    """Write the graph `source` with every matrix that it computes from constants as one constant in f16."""
    model = ov.Core().read_model(source)
    constant: set[str] = set()
    for node in model.get_ordered_ops():
        sources = [one.get_node().get_friendly_name() for one in node.input_values()]
        if node.get_type_name() == "Constant" or (sources and constant.issuperset(sources)):
            constant.add(node.get_friendly_name())
    for node in model.get_ordered_ops():
        if node.get_friendly_name() in constant:
            continue
        for slot in node.inputs():
            weights = slot.get_source_output()
            given = weights.get_node()
            if given.get_friendly_name() in constant and given.get_type_name() != "Constant":
                _fold(weights)
    ov.save_model(model, target, compress_to_fp16=True)


def _fold(weights: Any) -> None:
    """Replace what computes `weights` by its values, one matrix in memory at a time."""
    if np.prod(list(weights.get_shape())) < LEAST_ELEMENTS or weights.get_element_type() != ov.Type.f32:
        return
    consumers = list(weights.get_target_inputs())
    folding = passes.Manager()
    folding.register_pass(passes.ConstantFolding())
    folding.run_passes(ov.Model([weights], []))
    values = consumers[0].get_source_output().get_node().data
    narrow = opset13.convert(opset13.constant(values.astype(np.float16)), "f32")
    for consumer in consumers:
        consumer.replace_source_output(narrow.output(0))
