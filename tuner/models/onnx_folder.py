"""Describes a folder for ONNX Runtime GenAI by its configuration."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import Any

from profiles.vocabulary import ModelInfo
from tuner.errors import ModelFileError
from tuner.models.folders import has_chat_template, lacking, optional, read_object, required

_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")
"""How a tensor of an ONNX file names the file that holds its data: a length follows, then the name."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model")


def inspect_folder(folder: Path, *, name: str) -> ModelInfo:
    """What `genai_config.json` says of the model.

    It tells no parameter count, so that is 0, and so are bits per weight. Raises ModelFileError that names
    the file which is missing.
    """
    path = folder / "genai_config.json"
    model = _section(path, read_object(path), "model")
    decoder = _section(path, model, "decoder")
    graph = decoder.get("filename")
    if not isinstance(graph, str) or Path(graph).name != graph:
        raise ModelFileError(f"{path}: model.decoder.filename is {graph!r}; allowed: a file of this folder")
    for needed in (graph, "tokenizer_config.json"):
        if not (folder / needed).is_file():
            raise ModelFileError(f"{folder} lacks {needed}, which {path.name} needs")
    if len(list(lacking(folder, _TOKENIZERS))) == len(_TOKENIZERS):
        raise ModelFileError(f"{folder} lacks the tokenizer: neither {' nor '.join(_TOKENIZERS)} is there")
    data = data_files(folder / graph)
    missing = list(lacking(folder, data))
    if missing:
        raise ModelFileError(f"{folder} lacks {missing[0]}, the weights of {graph}; download it again")
    heads = required(path, decoder, "num_attention_heads")
    hidden = required(path, decoder, "hidden_size")
    head = optional(path, decoder, "head_size", hidden // heads)
    weights = sum((folder / file).stat().st_size for file in (graph, *data))
    kind = str(model.get("type"))
    return ModelInfo(
        name=name,
        digest="",
        format="onnx",
        architecture={"gemma3_text": "gemma3"}.get(kind, kind),
        parameter_count=0,
        layer_count=required(path, decoder, "num_hidden_layers"),
        hidden_size=hidden,
        head_count=heads,
        kv_head_count=optional(path, decoder, "num_key_value_heads", heads),
        key_length=head,
        value_length=head,
        vocabulary_size=required(path, model, "vocab_size"),
        context_length=required(path, model, "context_length", 1 << 40),
        file_bytes=weights,
        tensor_mix=(("onnx", weights),),
        bits_per_weight=0.0,
        has_chat_template=has_chat_template(folder),
    )


def data_files(graph: Path) -> tuple[str, ...]:
    """The files beside an ONNX file that hold its tensors' data, by the names in it."""
    if not graph.stat().st_size:
        raise ModelFileError(f"{graph} is empty")
    names = set()
    with graph.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for found in _LOCATION.finditer(content):
            names.add(content[found.end() : found.end() + found[1][0]].decode(errors="replace"))
    odd = next((name for name in names if Path(name).name != name), None)
    if odd is not None:
        raise ModelFileError(f"{graph} takes its data from {odd!r}; allowed: a file of its own folder")
    return tuple(sorted(names))


def _section(path: Path, document: dict[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key)
    if not isinstance(found, dict):
        raise ModelFileError(f"{path} has no section '{key}'; it is not of ONNX Runtime GenAI")
    return found
