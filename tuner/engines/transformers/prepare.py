"""Makes a variant's folder: `python -P -m MODULE SOURCE TARGET PARAMETERS_JSON`."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.engines.conversion import child
from tuner.engines.transformers.opened import NOTE
from tuner.engines.transformers.variants import BF16, QUANTIZED


def make(source: Path, target: Path, parameters: Mapping[str, Any]) -> None:
    """Write the folder of `parameters["weights"]`.

    bfloat16 weights are stored as such. Those in 8 bits are quantized when the folder is opened, which takes
    a second, since the libraries' own files for them are pickles: it holds the source's weights under second
    names, and a note.
    """
    weights = str(parameters["weights"])
    if weights != BF16 and weights not in QUANTIZED:
        raise ValueError(f"weights is {weights}; allowed: {', '.join((BF16, *QUANTIZED))}")
    target.mkdir()
    note: dict[str, object] = {"weights": weights}
    for path in sorted(source.iterdir()):
        if path.name.startswith(".") or path.name == NOTE or not path.is_file():
            continue
        if path.suffix == ".safetensors" and weights == BF16:
            _write_half(path, target / path.name)
        else:
            _bring(path, target / path.name)
    if weights in QUANTIZED:
        elements = sum(map(_elements, source.glob("*.safetensors")))
        note |= {"bits_per_weight": 8.0, "tensor_mix": {"i8": elements}}
    (target / NOTE).write_text(json.dumps(note))


def _elements(path: Path) -> int:
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in list(file.keys()))


def _write_half(source: Path, target: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(source)
    halves = {name: t.to(torch.bfloat16) if t.is_floating_point() else t for name, t in tensors.items()}
    save_file(halves, target, metadata={"format": "pt"})


def _bring(source: Path, target: Path) -> None:
    """A second name for the same bytes; a copy where the disk allows none."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    raise SystemExit(child.run(make))
