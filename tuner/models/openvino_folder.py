"""Describes a folder for OpenVINO GenAI by its graph, and by the model's configuration where it has one."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from profiles.vocabulary import ModelInfo
from tuner.errors import ModelFileError
from tuner.models.folders import has_chat_template, lacking, optional, read_object
from tuner.models.huggingface import GGUF_NAMES

GRAPH, WEIGHTS = "openvino_model.xml", "openvino_model.bin"
TOKENIZER = (
    "openvino_tokenizer.xml", "openvino_tokenizer.bin",
    "openvino_detokenizer.xml", "openvino_detokenizer.bin",
)  # fmt: skip
MOST_GRAPH_BYTES = 64 << 20
"""A graph of 60 layers has 5 MiB."""

_TYPES = frozenset({"f32", "f16", "bf16", "u8", "i8", "u4", "i4", "nf4", "f8e4m3", "f8e5m2", "u2", "i2"})
"""Of constants that can be weights; the others are shapes and indices."""


@dataclass
class _Graph:
    """What a graph says of its model."""

    mix: Counter[str] = field(default_factory=Counter)
    elements: int = 0
    caches: list[tuple[int, int]] = field(default_factory=list)
    """(heads, head size) of each state that is a KV cache."""
    tables: list[tuple[int, int]] = field(default_factory=list)
    """(rows, columns) of each matrix."""
    vocabulary: int = 0


def inspect_folder(folder: Path, *, name: str) -> ModelInfo:
    """What the graph says of the model, which is not everything: `context_length` is 0 where it is unknown.

    Without `config.json` the number of heads is what the width would give. Raises ModelFileError that names
    the file which is missing.
    """
    missing = list(lacking(folder, (WEIGHTS, *TOKENIZER)))
    if missing:
        made_with = ", which openvino_tokenizers' convert_tokenizer writes" if "token" in missing[0] else ""
        raise ModelFileError(f"{folder} lacks {missing[0]}{made_with}; export the model again")
    graph = _read_graph(folder / GRAPH)
    config_path = folder / "config.json"
    config = read_object(config_path) if config_path.is_file() else {}
    kv_heads, head = graph.caches[0]
    hidden = next((columns for rows, columns in graph.tables if rows == graph.vocabulary), head * kv_heads)
    kind = str(config.get("model_type", "unknown"))
    return ModelInfo(
        name=name,
        digest="",
        format="openvino",
        architecture=GGUF_NAMES.get(kind, kind),
        parameter_count=graph.elements,
        # Keys and values have a cache each.
        layer_count=len(graph.caches) // 2,
        hidden_size=hidden,
        head_count=optional(config_path, config, "num_attention_heads", max(hidden // head, kv_heads)),
        kv_head_count=kv_heads,
        key_length=head,
        value_length=head,
        vocabulary_size=graph.vocabulary,
        context_length=optional(config_path, config, "max_position_embeddings", 0),
        file_bytes=(folder / WEIGHTS).stat().st_size + (folder / GRAPH).stat().st_size,
        tensor_mix=tuple(sorted(graph.mix.items())),
        bits_per_weight=8 * graph.mix.total() / graph.elements,
        has_chat_template=has_chat_template(folder) or _tokenizer_has_template(folder / TOKENIZER[0]),
    )


def _read_graph(path: Path) -> _Graph:
    size = path.stat().st_size
    if size > MOST_GRAPH_BYTES:
        raise ModelFileError(f"{path} has {size} bytes; allowed: {MOST_GRAPH_BYTES}")
    with path.open("rb") as file:
        # Entities could make a small file expand without end; no graph declares any.
        if b"<!" in file.read(4096):
            raise ModelFileError(f"{path} is not an OpenVINO graph: it begins with a declaration")
    graph = _Graph()
    weights = path.with_name(WEIGHTS).stat().st_size
    try:
        for _event, element in ElementTree.iterparse(path):
            if element.tag == "layer":
                _read_layer(path, element, graph, weights)
                element.clear()
    except ElementTree.ParseError as error:
        raise ModelFileError(f"{path} is not an OpenVINO graph: {error}") from None
    if not graph.elements or not graph.caches or not graph.vocabulary:
        raise ModelFileError(
            f"{path} is not a text-generation model with a KV cache of its own: it holds {graph.elements}"
            f" weights, {len(graph.caches)} caches and {graph.vocabulary} logits; export it with its cache"
        )
    return graph


def _read_layer(path: Path, layer: ElementTree.Element, graph: _Graph, weights: int) -> None:
    data = layer.find("data")
    if layer.get("type") == "Const" and data is not None and data.get("element_type") in _TYPES:
        shape, size = _numbers(data.get("shape")), int(data.get("size") or 0)
        if int(data.get("offset") or 0) + size > weights:
            raise ModelFileError(
                f"{path.with_name(WEIGHTS)} is truncated: {layer.get('name')} lies behind its end"
            )
        graph.mix[str(data.get("element_type"))] += size
        # A last dimension of 1 is that of scales and zero points.
        if len(shape) > 1 and shape[-1] > 1:
            graph.elements += math.prod(shape)
            graph.tables.append((shape[0], math.prod(shape[1:])))
    elif layer.get("type") == "ReadValue" and data is not None:
        shape = _numbers(data.get("variable_shape"))
        if len(shape) == 4 and shape[1] > 0 and shape[3] > 0:
            graph.caches.append((shape[1], shape[3]))
    elif layer.get("type") == "Result":
        dimensions = [_number(dim.text) for dim in layer.findall("input/port/dim")]
        graph.vocabulary = max(graph.vocabulary, dimensions[-1] if dimensions else 0)


def _numbers(text: str | None) -> list[int]:
    """The numbers of a shape; one that is not fixed is -1."""
    return [_number(part) for part in (text or "").strip("[] ").split(",") if part.strip()]


def _number(text: str | None) -> int:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdecimal() and len(stripped) < 15 else -1


def _tokenizer_has_template(path: Path) -> bool:
    return path.stat().st_size <= MOST_GRAPH_BYTES and b"<chat_template " in path.read_bytes()
