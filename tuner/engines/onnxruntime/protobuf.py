"""Writes the few ONNX messages that a made-up model needs, so that no package is needed for it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

FLOAT, INT32, INT64 = 1, 6, 7
"""Element types of TensorProto."""

Attribute = int | float
Shape = Sequence[int | str]
"""A size, or the name of one that is known at run time only."""


def model(graph: bytes, *, opset: int, domains: Mapping[str, int]) -> bytes:
    """A ModelProto of IR version 8; `domains` are the opsets beside the standard one."""
    opsets = {"": opset, **domains}
    imports = [_message(8, _text(1, domain) + _number(2, version)) for domain, version in opsets.items()]
    return _number(1, 8) + b"".join(imports) + _message(7, graph)


def graph(
    nodes: Iterable[bytes], initializers: Iterable[bytes], inputs: Iterable[bytes], outputs: Iterable[bytes]
) -> bytes:
    """A GraphProto."""
    fields = ((1, nodes), (5, initializers), (11, inputs), (12, outputs))
    return _text(2, "graph") + b"".join(_message(number, one) for number, ones in fields for one in ones)


def node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Attribute
) -> bytes:
    """A NodeProto, named by its first output; an empty name leaves an input out."""
    names = b"".join(_text(1, name) for name in inputs) + b"".join(_text(2, name) for name in outputs)
    settings = b"".join(_message(5, _attribute(name, value)) for name, value in attributes.items())
    return names + _text(3, outputs[0]) + _text(4, operator) + settings + _text(7, domain)


def tensor(name: str, shape: Sequence[int], kind: int, data: bytes) -> bytes:
    """A TensorProto of little-endian data."""
    sizes = b"".join(_number(1, size) for size in shape)
    return sizes + _number(2, kind) + _text(8, name) + _message(9, data)


def value(name: str, kind: int, shape: Shape) -> bytes:
    """A ValueInfoProto: an input or output of the graph."""
    sizes = b"".join(
        _message(1, _text(2, size) if isinstance(size, str) else _number(1, size)) for size in shape
    )
    return _text(1, name) + _message(2, _message(1, _number(1, kind) + _message(2, sizes)))


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _text(1, name) + _key(2, 5) + struct.pack("<f", value) + _number(20, 1)
    return _text(1, name) + _number(3, value) + _number(20, 2)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _message(field: int, data: bytes) -> bytes:
    return _key(field, 2) + _varint(len(data)) + data


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(value: int) -> bytes:
    # A negative number is written as its 64-bit complement.
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
