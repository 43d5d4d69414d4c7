"""Says what is in a variant: its digest, its types, its bits per weight."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiles.vocabulary import ModelInfo
from tuner.engines.base import FOLDERS, SOURCE
from tuner.models.inspect import inspect, type_map
from tuner.models.shelf import files_below
from tuner.models.source import Source

NOTE = "cputune.json"
"""Where a maker may say what the files alone don't: {"bits_per_weight", "tensor_mix"} and what is its own."""

_DESCRIBED = ".described.json"
_WEIGHTS = ("*.safetensors", "*.onnx", "*.onnx.data", "openvino_model.bin")


@dataclass(frozen=True)
class Variant:
    """A file or folder that an engine opens; equal `digest` means equal weights in equal types, however made.

    `tensor_mix` maps a tensor type to its bytes, sorted by type.
    """

    label: str
    path: Path
    digest: str
    tensor_mix: tuple[tuple[str, int], ...]
    bits_per_weight: float
    file_bytes: int


def given(source: Source, model: ModelInfo) -> Variant:
    """The source as a variant, where it lies."""
    if source.format in FOLDERS:
        mix, bits = model.tensor_mix, model.bits_per_weight
        return Variant(SOURCE, source.path, model.digest, mix, bits, source.file_bytes)
    return _describe_parts(SOURCE, source.paths, model, model.format)


def describe(label: str, path: Path, model: ModelInfo, kind: str) -> Variant:
    """A made variant; a folder's content is read once, and what was found kept in it."""
    if kind not in FOLDERS:
        return _describe_parts(label, [path], model, kind)
    known = path / _DESCRIBED
    if not known.exists():
        known.write_text(json.dumps(_describe_folder(path, model)))
    document: dict[str, Any] = json.loads(known.read_text())
    mix = tuple(sorted(document.pop("tensor_mix").items()))
    return Variant(label, path, tensor_mix=mix, **document)


def _describe_parts(label: str, parts: Sequence[Path], model: ModelInfo, kind: str) -> Variant:
    """A file of another format than GGUF is known by its content alone."""
    if kind != "gguf":
        content = b"".join(part.read_bytes() for part in parts)
        bits = 8 * len(content) / max(model.parameter_count, 1)
        digest = hashlib.sha256(content).hexdigest()
        return Variant(label, parts[0], digest, ((label, len(content)),), bits, len(content))
    info = inspect(parts, name=model.name)
    types = json.dumps([model.digest, type_map(parts)])
    return Variant(
        label=label,
        path=parts[0],
        digest=hashlib.sha256(types.encode()).hexdigest(),
        tensor_mix=info.tensor_mix,
        bits_per_weight=info.bits_per_weight,
        file_bytes=info.file_bytes,
    )


def _describe_folder(folder: Path, model: ModelInfo) -> dict[str, object]:
    files = files_below(folder)
    weights = sum(path.stat().st_size for pattern in _WEIGHTS for path in folder.rglob(pattern))
    note = read_note(folder)
    return {
        "digest": digest_of_files(folder, files),
        "tensor_mix": note.get("tensor_mix", {"weights": weights}),
        "bits_per_weight": note.get("bits_per_weight", 8 * weights / max(model.parameter_count, 1)),
        "file_bytes": sum(path.stat().st_size for path in files),
    }


def read_note(folder: Path) -> Mapping[str, Any]:
    """What the maker of a folder said of it; empty where it said nothing."""
    path = folder / NOTE
    return json.loads(path.read_text()) if path.exists() else {}


def digest_of_files(folder: Path, files: Sequence[Path]) -> str:
    """The SHA-256 over the names of files below a folder and their contents."""
    whole = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode())
    return whole.hexdigest()
