"""Makes an ONNX GenAI folder of a Hugging Face folder: `python -P -m MODULE SOURCE TARGET PARAMETERS`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.engines.conversion import child
from tuner.engines.onnxruntime import graphs


def make(source: Path, target: Path, parameters: Mapping[str, Any]) -> None:
    """Run onnxruntime-genai's builder: `precision`, and its own options by name.

    The output layer is computed for the last token only, as other engines do when they read a prompt: on a
    small model with a large vocabulary it is most of the work.
    """
    from onnxruntime_genai.models import builder

    options = {"hf_token": "false", "prune_lm_head": "true", **parameters}
    precision = str(options.pop("precision"))
    target.mkdir()
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        place = ("", str(source), str(target), precision, "cpu", scratch)
        prepared = builder.parse_extra_options(*place, [f"{name}={value}" for name, value in options.items()])
        _flatten_rotation(prepared["hf_details"]["hf_config"])
        builder.create_model(*place, **prepared)
    graphs.write_all_positions(target)


def _flatten_rotation(configuration: Any) -> None:
    """Models with two kinds of attention have one rotation for each since Transformers 5; the builder (0.18)
    reads them as before, the sliding window's base beside the other one."""
    nested = getattr(configuration, "rope_parameters", None) or {}
    if {"full_attention", "sliding_attention"} <= set(nested):
        configuration.rope_parameters = nested["full_attention"]
        configuration.rope_theta = nested["full_attention"]["rope_theta"]
        configuration.rope_local_base_freq = nested["sliding_attention"]["rope_theta"]


if __name__ == "__main__":
    raise SystemExit(child.run(make))
