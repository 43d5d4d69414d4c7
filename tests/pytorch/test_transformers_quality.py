"""Every variant of Transformers against llama.cpp's reference: same text, same tokens, close logits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiles.vocabulary import QUALITY_LEVELS
from tests.support.variants import Variants
from tuner import engines
from tuner.engines.conversion import gguf_file
from tuner.models.huggingface import inspect_folder
from tuner.models.source import Source

pytestmark = [pytest.mark.torch, pytest.mark.real]


def test_float32_is_the_reference_but_for_rounding(variants: Variants) -> None:
    found = variants.quality("transformers", "f32")
    assert found.kl_divergence <= 0.002
    assert found.top1_agreement >= 0.995


@pytest.mark.parametrize("label", ["bf16", "int8"])
def test_near_lossless_variants(variants: Variants, label: str) -> None:
    found = variants.quality("transformers", label)
    assert found.meets(QUALITY_LEVELS["near-lossless"]), found
    assert found.kl_divergence > variants.quality("transformers", "f32").kl_divergence


def test_quantized_activations_cost_more(variants: Variants) -> None:
    """Of bitsandbytes only the speed is tested: it takes minutes for so many positions."""
    found = variants.quality("transformers", "int8_dynamic")
    assert found.kl_divergence > variants.quality("transformers", "int8").kl_divergence
    assert found.top1_agreement > 0.8


def test_a_gguf_file_survives_the_way_to_a_folder_and_back(variants: Variants) -> None:
    """What `to_gguf` writes of the folder is again what llama.cpp reads from the file, tokens included."""
    folder = variants.path("transformers", "f32")
    model = replace(inspect_folder(folder, name="folder"), digest="of the folder")
    source = Source(str(folder), "folder", (folder / "config.json",), 0, format="huggingface")
    recipe = gguf_file(model)
    assert recipe is not None
    llama_cpp = engines.get("llama_cpp")
    made = variants.cache.ensure(llama_cpp, source, model, recipe, build="test build 1", deadline_s=120.0)
    assert made.tensor_mix == (("f32", 4 * model.parameter_count),)
    answer = variants.ask(
        "llama_cpp", made.path, "score_compare", {"reference": str(variants.folder / "reference.npz")}
    )
    assert sum(answer["kl"]) / len(answer["kl"]) <= 0.0005
