"""Reads and checks the header of a safetensors file that nobody vouches for, in bounded time and memory."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import ModelFileError

MOST_HEADER_BYTES = 16 << 20
MOST_TENSORS = 1 << 16
MOST_DIMENSIONS = 8

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file; `type` as in tables ("f32"), sizes in elements and bytes."""

    name: str
    type: str
    shape: tuple[int, ...]
    elements: int
    size_bytes: int


def read_tensors(path: Path) -> tuple[Tensor, ...]:
    """The tensors of a file, checked against its real size.

    Raises ModelFileError with one line that says what is wrong.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MOST_HEADER_BYTES, size - 8):
                raise ModelFileError(
                    f"{path} is not a safetensors file, or truncated: its header claims {length} bytes,"
                    f" the file has {size}; allowed: {MOST_HEADER_BYTES}"
                )
            header = json.loads(file.read(length))
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path} is not a safetensors file: its header is no JSON") from None
    if not isinstance(header, dict) or len(header) > MOST_TENSORS:
        raise ModelFileError(f"{path} is not a safetensors file: its header names no tensors, or too many")
    header.pop("__metadata__", None)
    tensors, spans = [], []
    for name, entry in header.items():
        tensor, span = _checked(path, name, entry)
        tensors.append(tensor)
        spans.append(span)
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            raise ModelFileError(f"{path}: its tensors overlap, or leave a gap, at byte {min(begin, at)}")
        at = end
    if size != 8 + length + at:
        raise ModelFileError(
            f"{path} is truncated: its tensors end at byte {8 + length + at}, the file has {size} bytes;"
            " download it again"
        )
    return tuple(tensors)


def _checked(path: Path, name: str, entry: object) -> tuple[Tensor, tuple[int, int]]:
    """A tensor and its place in the data."""
    if isinstance(entry, dict):
        kind, shape, span = (
            entry.get("dtype"),
            _counts(entry.get("shape")),
            _counts(entry.get("data_offsets")),
        )
        if kind in BITS and shape is not None and span is not None and len(span) == 2:
            size = span[1] - span[0]
            elements = math.prod(shape)
            if size >= 0 and elements * BITS[kind] == 8 * size:
                return Tensor(name, kind.lower(), shape, elements, size), (span[0], span[1])
    raise ModelFileError(
        f"{path}: tensor '{name[:80]}' has no sound type, shape and place: {str(entry)[:99]}"
    )


def _counts(value: object) -> tuple[int, ...] | None:
    """A short list of numbers; None for anything else."""
    if not isinstance(value, list) or len(value) > MOST_DIMENSIONS:
        return None
    return tuple(value) if all(type(item) is int and 0 <= item < 1 << 48 for item in value) else None
