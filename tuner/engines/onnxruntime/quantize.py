"""Makes an 8-bit folder of a float32 ONNX GenAI folder: `python -P -m MODULE SOURCE TARGET PARAMETERS`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.engines.conversion import child
from tuner.engines.onnxruntime import graphs

_GRAPH = "model.onnx"
_OF_THE_SOURCE = ("cputune.json", ".described.json")
"""What the cache and the maker of the source say of the source."""


def make(source: Path, target: Path, parameters: Mapping[str, Any]) -> None:
    """Dynamic quantization: weights per output channel here, activations per tensor at run time.

    Matrices with `parameters["in_blocks"]` in their name are in blocks of 32 instead, with their activations.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target.mkdir()
    outlying = parameters.get("in_blocks")
    nodes = onnx.load(source / _GRAPH, load_external_data=False).graph.node
    matrices = [node.name for node in nodes if node.op_type == "MatMul"]
    left = [name for name in matrices if outlying and outlying in name]
    # What a killed maker leaves behind goes with the folder.
    tempfile.tempdir = str(target)
    quantize_dynamic(
        source / _GRAPH,
        target / _GRAPH,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type={"int8": QuantType.QInt8}[parameters["weight_type"]],
        nodes_to_exclude=left,
        use_external_data_format=True,
    )
    if left:
        _quantize_in_blocks(target / _GRAPH)
    for path in source.iterdir():
        if path.suffix not in (".onnx", ".data") and path.name not in _OF_THE_SOURCE:
            _place(path, target / path.name)
    graphs.write_all_positions(target)


def _quantize_in_blocks(path: Path) -> None:
    """What is a float matrix still."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        str(path),
        bits=8,
        block_size=32,
        is_symmetric=True,
        accuracy_level=4,
        op_types_to_quantize=("MatMul",),
    )
    quantizer.process()
    # The new data would be added behind the old.
    path.with_name(f"{path.name}.data").unlink()
    quantizer.model.save_model_to_file(str(path), use_external_data_format=True)


def _place(path: Path, target: Path) -> None:
    """A link costs nothing; across file systems it is a copy."""
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


if __name__ == "__main__":
    raise SystemExit(child.run(make))
