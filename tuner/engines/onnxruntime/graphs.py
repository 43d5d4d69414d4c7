"""Turns a graph that computes the last token's logits into one that computes every token's."""

from __future__ import annotations

from pathlib import Path

from tuner.engines.onnxruntime.variants import ALL_POSITIONS

PRUNING = ("/lm_head/prune/Gather", "/lm_head/prune/Unsqueeze")
"""The nodes by which onnxruntime-genai's builder takes the last token before the output layer."""


def write_all_positions(folder: Path) -> None:
    """Write `ALL_POSITIONS` beside model.onnx, on the same weights: a judge needs all logits of a text.

    Raises ValueError where the graph does not have the two nodes that it leaves out.
    """
    import onnx

    model = onnx.load(folder / "model.onnx", load_external_data=False)
    nodes = {node.name: node for node in model.graph.node}
    missing = [name for name in PRUNING if name not in nodes]
    if missing:
        raise ValueError(f"model.onnx has no node {' and no node '.join(missing)}: another builder's graph")
    first, last = (nodes[name] for name in PRUNING)
    for node in model.graph.node:
        node.input[:] = [first.input[0] if name == last.output[0] else name for name in node.input]
    for node in (first, last):
        model.graph.node.remove(node)
    # Shapes that were inferred behind the nodes speak of one token.
    del model.graph.value_info[:]
    for output in model.graph.output:
        if output.name == "logits":
            output.type.tensor_type.shape.dim[1].dim_param = "sequence_length"
    onnx.save(model, folder / ALL_POSITIONS)
