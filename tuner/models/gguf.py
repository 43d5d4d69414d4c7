"""Reads and checks the header of a GGUF file that nobody vouches for, in bounded time and memory."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from tuner.errors import ModelFileError
from tuner.models.gguf_types import TENSOR_TYPES

Scalar = bool | int | float | str
Value = Scalar | tuple[bool | int | float, ...] | None
"""A key's value: None stands for one that is too long to keep; an array's length is in `array_lengths`."""

MAX_KEYS = 1 << 13
MAX_TENSORS = 1 << 13
MAX_NAME_BYTES = 256
MAX_ARRAY_STRINGS = 1_000_000
"""In all arrays together; the largest vocabularies with their merges have 800 000."""

MAX_KEPT_BYTES = 1 << 12
"""Of one value; chat templates and tables are longer, and only their presence counts here."""

MAX_KEPT_TEXT_BYTES = 1 << 20
"""Of all string values together."""

MAX_KEPT_VALUES = 1 << 16
"""Elements of all arrays that are kept."""

MAX_DIMENSIONS = 4
ALIGNMENTS = (8, 1 << 20)
"""Least and greatest; the format asks for a multiple of 8, more than a MiB is no file that anyone wrote."""

_WINDOW_BYTES = 1 << 20
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FORMATS = {kind: struct.Struct("<" + letter) for kind, letter in _SCALARS.items()}
_STRING, _ARRAY = 8, 9
_U32, _U64 = _FORMATS[4], _FORMATS[10]

_OTHER_FORMATS = (
    (b"version https://git-lfs", "a Git LFS pointer, not the model itself; run git lfs pull"),
    (b"<!doctype html", "an HTML page, not a model; download the file itself, not the page about it"),
    (b"<html", "an HTML page, not a model; download the file itself, not the page about it"),
    (b"lmgg", "a legacy GGML file; convert the model to GGUF"),
    (b"fmgg", "a legacy GGML file (GGMF); convert the model to GGUF"),
    (b"tjgg", "a legacy GGML file (GGJT); convert the model to GGUF"),
    (b"algg", "a legacy GGML adapter (GGLA), not a model"),
    (b"pk\x03\x04", "a zip archive; unpack it, or convert a PyTorch checkpoint to GGUF"),
)


@dataclass(frozen=True)
class Tensor:
    """A tensor's place: `offset` counts from the start of the data, sizes are in elements and bytes."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    elements: int
    size_bytes: int


@dataclass(frozen=True)
class Header:
    """A checked header: every tensor lies within the file."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    array_lengths: Mapping[str, int]
    tensors: tuple[Tensor, ...]
    data_start: int
    file_bytes: int

    @property
    def architecture(self) -> str:
        """`general.architecture`; empty in the later parts of a split model."""
        return self.text("general.architecture") or ""

    def text(self, key: str) -> str | None:
        """A string value; None where the key is absent or of another type."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        """An integer value, of a per-layer array its greatest; None where there is none."""
        value = self.metadata.get(key)
        if isinstance(value, tuple):
            integers = [item for item in value if isinstance(item, int)]
            return max(integers, default=None)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def of_architecture(self, key: str) -> int | None:
        """The integer under the architecture's own prefix."""
        return self.integer(f"{self.architecture}.{key}")

    @cached_property
    def tensor_mix(self) -> dict[str, int]:
        """Tensor type -> bytes."""
        mix: Counter[str] = Counter()
        for tensor in self.tensors:
            mix[tensor.type] += tensor.size_bytes
        return dict(mix)


def read_header(path: Path) -> Header:
    """The header of a GGUF file, checked against the file's real size.

    Raises ModelFileError with one line that says what the file is instead, or what is wrong in it. Takes a
    few MiB and well under 100 ms whatever the file holds; trailing padding is legal.
    """
    try:
        if path.is_dir():
            raise _refusal(path, "is a folder; name the .gguf file in it")
        # Opening a pipe would wait for a writer.
        if path.exists() and not path.is_file():
            raise _refusal(path, "is not a regular file")
        with path.open("rb", buffering=0) as file:
            return _read(path, file, os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        raise _refusal(path, "does not exist") from None
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror}") from error


class _TruncatedError(Exception):
    """The file ends where the header goes on; the argument is the position that was asked for."""


class _Reader:
    """Little-endian values from a window on the file that moves forward."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._base = 0
        self._window = b""
        self._at = 0
        self.array_strings = 0
        self.kept_values = 0
        self.kept_text_bytes = 0

    @property
    def position(self) -> int:
        return self._base + self._at

    def take(self, count: int) -> bytes:
        self._need(count)
        begin = self._at
        self._at += count
        return self._window[begin : self._at]

    def scalar(self, form: struct.Struct) -> int:
        self._need(form.size)
        (value,) = form.unpack_from(self._window, self._at)
        self._at += form.size
        return int(value) if form is _U32 or form is _U64 else value

    def skip(self, count: int) -> None:
        if self.position + count > self._size:
            raise _TruncatedError(self.position + count)
        self._at += count

    def skip_strings(self, count: int) -> None:
        """Step over strings by their lengths alone, as fast as Python does."""
        unpack = _U64.unpack_from
        while count:
            self._need(8)
            window, at, left = self._window, self._at, count
            last = len(window) - 8
            while left and at <= last:
                at += 8 + unpack(window, at)[0]
                left -= 1
            count = left
            if self._base + at > self._size:
                raise _TruncatedError(self._base + at)
            self._at = at

    def _need(self, count: int) -> None:
        if self._at + count <= len(self._window):
            return
        position = self.position
        if position + count > self._size:
            raise _TruncatedError(position + count)
        self._file.seek(position)
        self._window = self._file.read(max(count, _WINDOW_BYTES))
        self._base, self._at = position, 0
        if len(self._window) < count:
            raise _TruncatedError(position + count)


def _read(path: Path, file: BinaryIO, size: int) -> Header:
    if size == 0:
        raise _refusal(path, "is empty")
    _check_magic(path, file.read(64))
    file.seek(0)
    reader = _Reader(file, size)
    try:
        reader.skip(4)
        version = reader.scalar(_U32)
        _check_version(path, version)
        tensor_count, key_count = reader.scalar(_U64), reader.scalar(_U64)
        for what, count, most in (("tensors", tensor_count, MAX_TENSORS), ("keys", key_count, MAX_KEYS)):
            if count > most:
                raise _refusal(path, f"its header claims {count} {what}; allowed: {most}")
        metadata, lengths = _read_metadata(path, reader, key_count)
        alignment = metadata.get("general.alignment", 32)
        low, high = ALIGNMENTS
        if not isinstance(alignment, int) or not low <= alignment <= high or alignment & (alignment - 1):
            raise _refusal(
                path, f"general.alignment is {alignment}; allowed: a power of two from {low} to {high}"
            )
        names: set[str] = set()
        tensors = []
        for _ in range(tensor_count):
            tensor = _read_tensor(path, reader, alignment)
            if tensor.name in names:
                raise _refusal(path, f"has two tensors named '{tensor.name}'")
            names.add(tensor.name)
            tensors.append(tensor)
    except _TruncatedError as end:
        raise _refusal(
            path,
            f"is truncated: its header goes on to byte {end.args[0]} at least, the file has {size} bytes",
        ) from None
    data_start = -(-reader.position // alignment) * alignment
    header = Header(path, version, metadata, lengths, tuple(tensors), data_start, size)
    _check_extent(header)
    return header


def _check_magic(path: Path, head: bytes) -> None:
    if head.startswith(b"GGUF"):
        return
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for magic, what in _OTHER_FORMATS:
        if begin.startswith(magic):
            raise _refusal(path, f"is {what}")
    raise _refusal(path, f"is not a GGUF file: it begins with {head[:4]!r}, expected b'GGUF'")


def _check_version(path: Path, version: int) -> None:
    if version in (2, 3):
        return
    if version == 1:
        raise _refusal(path, "is GGUF version 1, which engines no longer read; convert the model anew")
    if version and version & 0xFFFF == 0:
        raise _refusal(path, "is a big-endian GGUF file; convert it with gguf-convert-endian")
    raise _refusal(path, f"is GGUF version {version}; known are 2 and 3")


def _read_metadata(path: Path, reader: _Reader, count: int) -> tuple[dict[str, Value], dict[str, int]]:
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(count):
        key = _read_string(path, reader, "a key")
        if key in metadata:
            raise _refusal(path, f"has the key '{key}' twice")
        kind = reader.scalar(_U32)
        if kind in _FORMATS:
            metadata[key] = reader.scalar(_FORMATS[kind])
        elif kind == _STRING:
            length = reader.scalar(_U64)
            reader.kept_text_bytes += min(length, MAX_KEPT_BYTES)
            short = length <= MAX_KEPT_BYTES and reader.kept_text_bytes <= MAX_KEPT_TEXT_BYTES
            metadata[key] = reader.take(length).decode(errors="replace") if short else None
            reader.skip(0 if short else length)
        elif kind == _ARRAY:
            element, length = reader.scalar(_U32), reader.scalar(_U64)
            metadata[key] = _read_array(path, reader, key, element, length)
            lengths[key] = length
        else:
            raise _refusal(path, f"key '{key}' has the unknown type {kind}")
    return metadata, lengths


def _read_array(path: Path, reader: _Reader, key: str, element: int, length: int) -> Value:
    if element == _STRING:
        reader.array_strings += length
        if reader.array_strings > MAX_ARRAY_STRINGS:
            raise _refusal(path, f"array '{key}' claims {length} strings; allowed: {MAX_ARRAY_STRINGS}")
        reader.skip_strings(length)
        return None
    if element not in _FORMATS:
        raise _refusal(path, f"array '{key}' has elements of the unknown type {element}")
    form = _FORMATS[element]
    reader.kept_values += length
    if length * form.size > MAX_KEPT_BYTES or reader.kept_values > MAX_KEPT_VALUES:
        reader.skip(length * form.size)
        return None
    return tuple(reader.scalar(form) for _ in range(length))


def _read_tensor(path: Path, reader: _Reader, alignment: int) -> Tensor:
    name = _read_string(path, reader, "a tensor name")
    dimensions = reader.scalar(_U32)
    if dimensions > MAX_DIMENSIONS:
        raise _refusal(path, f"tensor '{name}' claims {dimensions} dimensions; allowed: {MAX_DIMENSIONS}")
    shape = tuple(reader.scalar(_U64) for _ in range(dimensions))
    kind = reader.scalar(_U32)
    offset = reader.scalar(_U64)
    elements = 1
    for size in shape:
        elements *= size
        if elements >= 1 << 63:
            raise _refusal(path, f"tensor '{name}' of shape {shape} overflows 63 bits")
    if kind not in TENSOR_TYPES:
        raise _refusal(path, f"tensor '{name}' has the unknown type {kind}")
    known = TENSOR_TYPES[kind]
    row = shape[0] if shape else 1
    if row % known.block_elements:
        raise _refusal(
            path,
            f"tensor '{name}' has rows of {row} elements;"
            f" {known.name} needs a multiple of {known.block_elements}",
        )
    if offset % alignment:
        raise _refusal(
            path, f"tensor '{name}' begins at {offset}, not a multiple of the alignment {alignment}"
        )
    size_bytes = elements // known.block_elements * known.block_bytes
    return Tensor(name, known.name, shape, offset, elements, size_bytes)


def _read_string(path: Path, reader: _Reader, what: str) -> str:
    length = reader.scalar(_U64)
    if length > MAX_NAME_BYTES:
        raise _refusal(path, f"{what} claims {length} bytes; allowed: {MAX_NAME_BYTES}")
    return reader.take(length).decode(errors="replace")


def _check_extent(header: Header) -> None:
    """Raises for the first tensor that ends behind the file."""
    for tensor in header.tensors:
        needed = header.data_start + tensor.offset + tensor.size_bytes
        if needed > header.file_bytes:
            raise _refusal(
                header.path,
                f"is truncated: tensor '{tensor.name}' needs {needed} bytes,"
                f" the file has {header.file_bytes}; download it again",
            )


def _refusal(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path} {what}")
