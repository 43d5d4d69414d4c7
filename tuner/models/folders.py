"""Recognises a model that is a folder of files, and reads its documents within bounds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.errors import ModelFileError

MARKS = {"onnx": "genai_config.json", "openvino": "openvino_model.xml", "huggingface": "config.json"}
"""Format -> the file that no such folder lacks, the most telling one first."""

MOST_FILES = 1000
MOST_DOCUMENT_BYTES = 4 << 20
"""Of a configuration; a chat template in it has a few thousand."""

SUFFIXES = {
    "huggingface": {".json", ".safetensors", ".model", ".jinja", ".txt"},
    "onnx": {".json", ".onnx", ".data", ".model", ".jinja", ".txt"},
    "openvino": {".xml", ".bin", ".json", ".model", ".jinja", ".txt"},
}
_LFS_POINTER = b"version https://git-lfs"


def format_of(folder: Path) -> str | None:
    """The format of the model in a folder; None where there is none."""
    return next((kind for kind, mark in MARKS.items() if os.path.isfile(folder / mark)), None)


def folder_named(path: Path) -> Path | None:
    """The model's folder where `path` is it or a file in it; None where it is neither."""
    # Unlike pathlib's these say no to a name that the system refuses, whatever Python's version.
    folder = path if os.path.isdir(path) else path.parent
    is_other_file = os.path.isfile(path) and path.suffix not in set().union(*SUFFIXES.values())
    if path.suffix == ".gguf" or is_other_file:
        return None
    return folder if format_of(folder) else None


def files_of(folder: Path, kind: str) -> tuple[Path, ...]:
    """The files that make up the model, sorted; what else lies there does not count.

    Raises ModelFileError for a Git LFS pointer, a file that is none, and more files than a model has.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(MOST_FILES + 1), entries, strict=False)]
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be read: {error.strerror}") from None
    if len(names) > MOST_FILES:
        raise ModelFileError(f"{folder} holds more than {MOST_FILES} files; name a folder of the model alone")
    wanted = sorted(name for name in names if belongs(name, kind))
    paths = tuple(folder / name for name in wanted)
    for path in paths:
        if not path.is_file():
            raise ModelFileError(f"{path} is not a regular file")
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise ModelFileError(f"{path} is a Git LFS pointer, not the file itself; run git lfs pull")
    return paths


def belongs(name: str, kind: str) -> bool:
    """Whether a file of this name in a model's folder is a part of the model."""
    return Path(name).suffix in SUFFIXES[kind] and not name.startswith(".") and "/" not in name


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; raises ModelFileError where it is none, or too large."""
    try:
        size = path.stat().st_size
        if size > MOST_DOCUMENT_BYTES:
            raise ModelFileError(f"{path} has {size} bytes; allowed: {MOST_DOCUMENT_BYTES}")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path} is not a JSON document; download it again") from None
    if not isinstance(document, dict):
        raise ModelFileError(f"{path} is not a JSON object")
    return document


def required(path: Path, document: Mapping[str, Any], key: str, most: int = 1 << 24) -> int:
    """A whole number above 0 from a document; raises ModelFileError that names the key."""
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ModelFileError(f"{path}: {key} is {value!r}; allowed: a whole number from 1 to {most}")
    return value


def optional(path: Path, document: Mapping[str, Any], key: str, otherwise: int) -> int:
    """As `required`, with a value for a key that is absent or null."""
    return otherwise if document.get(key) is None else required(path, document, key)


def lacking(folder: Path, names: tuple[str, ...]) -> Iterator[str]:
    """Those of some files that a folder lacks."""
    return (name for name in names if not (folder / name).is_file())


def has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer's files hold a template."""
    if (folder / "chat_template.jinja").is_file():
        return True
    path = folder / "tokenizer_config.json"
    return path.is_file() and bool(read_object(path).get("chat_template"))
