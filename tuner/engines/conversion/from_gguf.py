"""Makes a Hugging Face folder of a GGUF file: `python -P -m MODULE SOURCE TARGET PARAMETERS_JSON`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.engines.conversion import child, rotation


def make(source: Path, target: Path, parameters: Mapping[str, Any]) -> None:
    """Dequantize the weights to `parameters["dtype"]` and write them with configuration and tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    dtype = getattr(torch, str(parameters["dtype"]))
    model: Any = AutoModelForCausalLM.from_pretrained(source.parent, dtype=dtype, **place)
    # The weights are plain floats by now, but `save_pretrained` refuses what was loaded from GGUF.
    model.hf_quantizer = None
    del model.config.quantization_config
    factors = rotation.stored_factors([source])
    if factors is not None:
        # Transformers reads the base only.
        rope = model.config.rope_parameters
        model.config.rope_parameters = {**rope, **rotation.llama3_parameters(factors, rope["rope_theta"])}
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source.parent, **place).save_pretrained(target)


if __name__ == "__main__":
    raise SystemExit(child.run(make))
