"""Writes a model's frequencies of rotation into its graph, as OpenVINO GenAI's GGUF reader does not.

It takes no notice of Llama 3.1's factors, and rounds frequencies to f16 where the weights are floats: off by
up to 0.0002 a token, which is half a radian after 2000.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13


def write_frequencies(graph: Path, target: Path, frequencies: npt.NDArray[np.float32]) -> None:
    """Write the graph with these frequencies; ValueError where it has no place for them."""
    model = ov.Core().read_model(graph)
    exact = opset13.constant(frequencies.reshape(1, -1, 1))
    found = [node for node in model.get_ops() if _holds_frequencies(node, list(exact.shape))]
    if not found:
        raise ValueError(f"the graph has no place for {frequencies.size} frequencies of rotation")
    for node in found:
        for consumer in node.output(0).get_target_inputs():
            consumer.replace_source_output(exact.output(0))
    ov.save_model(model, target, compress_to_fp16=False)


def _holds_frequencies(node: Any, shape: list[int]) -> bool:
    """Whether a node is a constant of this shape in f32, or one that is widened to it."""
    is_widened = (
        node.get_type_name() == "Convert" and node.input_value(0).get_node().get_type_name() == "Constant"
    )
    if not is_widened and node.get_type_name() != "Constant":
        return False
    is_wide: bool = node.get_output_element_type(0) == ov.Type.f32
    return is_wide and list(node.get_output_shape(0)) == shape
