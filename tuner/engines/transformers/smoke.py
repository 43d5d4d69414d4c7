"""Shows that this installation of Transformers computes on this CPU: two tokens of a made-up model."""

from __future__ import annotations

import torch
import transformers

from probes.machine import probe
from tuner.engines.transformers import build

NATIVE_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""CPU features that multiply bfloat16; the last one is Arm's."""


def run() -> dict[str, object]:
    """Version and build, after float32 and bfloat16 were computed."""
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
    )
    for dtype in (torch.float32, torch.bfloat16):
        model = transformers.LlamaForCausalLM(config).to(dtype).eval()
        cache = transformers.DynamicCache()
        with torch.inference_mode():
            for tokens in ([1, 2, 3], [4]):
                model(torch.tensor([tokens]), cache=cache, use_cache=True)
    facts: dict[str, object] = {"version": transformers.__version__, "build": build.identity()}
    if not NATIVE_BF16.intersection(probe().features):
        facts["note"] = (
            "bf16 saves memory but not time: this CPU has none of the instructions for it"
            f" ({', '.join(sorted(NATIVE_BF16))})"
        )
    return facts
