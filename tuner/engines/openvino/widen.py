"""Writes a GGUF with matrices in f16: `python -P -m tuner.engines.openvino.widen SOURCE TARGET JSON`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tuner.engines.conversion import child

_DROPPED = ("GGUF.", "split.", "general.architecture", "general.file_type")
"""What the writer says itself, and what is no longer true."""


def make(source: Path, target: Path, parameters: Mapping[str, Any]) -> None:
    """Dequantize the file `source`, or the split model of which it is the first part, into the file `target`.

    Vectors stay f32; one tensor at a time is in memory.
    """
    import gguf

    del parameters
    readers = [gguf.GGUFReader(part) for part in parts(source)]
    fields = readers[0].fields
    writer = gguf.GGUFWriter(target, str(fields["general.architecture"].contents()))
    for field in fields.values():
        if not field.name.startswith(_DROPPED):
            kind, *inner = field.types
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner[-1] if inner else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    tensors = [tensor for reader in readers for tensor in reader.tensors]
    for tensor in tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        wide = np.dtype(np.float16 if len(shape) > 1 else np.float32)
        writer.add_tensor_info(tensor.name, shape, wide, int(np.prod(shape)) * wide.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        wide = np.dtype(np.float16 if len(tensor.shape) > 1 else np.float32)
        writer.write_tensor_data(gguf.dequantize(tensor.data, tensor.tensor_type).astype(wide))
    writer.close()


def parts(source: Path) -> list[Path]:
    """All files of a split model, of which the first is given."""
    split = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", source.name)
    if split is None:
        return [source]
    stem, count = split.groups()
    return [source.with_name(f"{stem}-{number:05}-of-{count}.gguf") for number in range(1, int(count) + 1)]


if __name__ == "__main__":
    raise SystemExit(child.run(make))
