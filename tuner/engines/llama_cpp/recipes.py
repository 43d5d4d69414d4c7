"""Makes one GGUF variant from another: `python -P -m tuner.engines.llama_cpp.recipes SOURCE TARGET JSON`."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.engines.base import EngineError
from tuner.engines.llama_cpp.native import FILE_TYPES, LOG, ggml_type, low, set_fields, start

KNOWN = ("file_type", "token_embedding_type", "output_tensor_type")


def make(source: Path, target: Path, parameters: Mapping[str, object]) -> None:
    """Quantize `source` (the first part of a split model stands for all) into the file `target`.

    `parameters`: `file_type`, optional `token_embedding_type` and `output_tensor_type`, all by name.
    Raises EngineError with the engine's own line when it refuses.
    """
    unknown = sorted(set(parameters) - set(KNOWN))
    file_type = str(parameters.get("file_type"))
    if unknown or file_type not in FILE_TYPES:
        raise EngineError(f"bad recipe {dict(parameters)}; file_type is one of {', '.join(FILE_TYPES)}")
    start()
    settings = low.llama_model_quantize_default_params()
    set_fields(
        settings,
        nthread=len(os.sched_getaffinity(0)),
        ftype=FILE_TYPES[file_type],
        allow_requantize=True,
    )
    for name in KNOWN[1:]:
        if name in parameters:
            set_fields(settings, **{name: ggml_type(parameters[name])})
    LOG.clear()
    refused = low.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(settings))
    if refused or not target.exists():
        raise EngineError(LOG.last_error(f"llama_model_quantize returned {refused}"))


def main(arguments: Sequence[str]) -> int:
    """Run as a child process: 0 when made, 1 with one line on stderr when not."""
    source, target, parameters = arguments
    try:
        make(Path(source), Path(target), json.loads(parameters))
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
