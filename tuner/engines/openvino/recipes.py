"""Makes a folder of OpenVINO IR: `python -P -m tuner.engines.openvino.recipes SOURCE TARGET JSON`."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.engines.conversion import child
from tuner.engines.conversion.rotation import stored_frequencies
from tuner.engines.openvino.folder import DETOKENIZER, MODEL, TOKENIZER, WEIGHTS
from tuner.engines.openvino.graph import reason
from tuner.engines.openvino.rotation import write_frequencies
from tuner.engines.openvino.weights import bytes_by_type, dequantize
from tuner.engines.openvino.widen import parts

GIVEN, F16, INT8, INT4 = "given", "f16", "int8", "int4"

NOTE = "cputune.json"
"""Where a maker says what is in its folder."""


def make(source: Path, target: Path, parameters: Mapping[str, Any]) -> None:
    """Make the folder `target` by `parameters["weights"]`.

    "given": the graph of a GGUF file with its weights as they are. "f16": a folder's graph with its weights
    dequantized. "int8" and "int4": a folder's graph with weights in integers, one scale for a row or for
    `parameters["group_size"]` of it.
    """
    weights = parameters["weights"]
    target.mkdir()
    if weights == GIVEN:
        _from_gguf(source, target)
    else:
        for path in source.iterdir():
            # Tokenizers and configurations; hidden files are somebody's notes on that folder.
            if path.is_file() and path.name[0] != "." and path.name not in (MODEL, WEIGHTS, NOTE):
                shutil.copyfile(path, target / path.name)
        if weights == F16:
            dequantize(source / MODEL, target / MODEL)
        else:
            _compress(source / MODEL, target / MODEL, weights, parameters)
    (target / NOTE).write_text(json.dumps({"tensor_mix": bytes_by_type(target / MODEL)}))


def _from_gguf(source: Path, target: Path) -> None:
    import openvino_genai

    with tempfile.TemporaryDirectory(dir=target) as scratch:
        # The reader writes beside the file that it reads: links let it write elsewhere.
        for part in parts(source):
            Path(scratch, part.name).symlink_to(part.resolve())
        try:
            openvino_genai.LLMPipeline(Path(scratch, source.name), "CPU", enable_save_ov_model=True)
        except RuntimeError as error:
            raise ValueError(reason(error)) from error
        write_frequencies(Path(scratch, MODEL), target / MODEL, stored_frequencies(parts(source)))
        for name in (TOKENIZER, DETOKENIZER):
            for end in ("xml", "bin"):
                os.replace(Path(scratch, f"{name}.{end}"), target / f"{name}.{end}")


def _compress(source: Path, target: Path, weights: str, parameters: Mapping[str, Any]) -> None:
    # NNCF reports its use to a server unless it believes to run in somebody's tests.
    os.environ["NNCF_CI"] = "1"
    import nncf
    import openvino as ov

    model = ov.Core().read_model(source)
    if weights == INT8:
        options: dict[str, Any] = {"mode": nncf.CompressWeightsMode.INT8_SYM}
    else:
        options = {
            "mode": nncf.CompressWeightsMode.INT4_ASYM,
            "group_size": int(parameters["group_size"]),
            "advanced_parameters": nncf.AdvancedCompressionParameters(
                group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
            ),
        }
    ov.save_model(nncf.compress_weights(model, **options), target, compress_to_fp16=False)


if __name__ == "__main__":
    raise SystemExit(child.run(make))
