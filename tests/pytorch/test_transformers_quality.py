"""Every variant of Transformers against llama.cpp's reference: same text, same tokens, close logits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiles.vocabulary import QUALITY_LEVELS
from tests.support.variants import Variants
from tuner import engines
from tuner.engines.contract import finish
from tuner.engines.conversion import gguf_file
from tuner.measurement import quality, scoring
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
    variants.quality("transformers", "f32")
    answer = variants.ask(
        "llama_cpp", made.path, "score_compare", {"reference": str(variants.folder / "reference.npz")}
    )
    assert sum(answer["kl"]) / len(answer["kl"]) <= 0.0005


def test_e20_a_coarse_kv_cache_is_fluent_and_seen(
    variants: Variants, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 4-bit cache still answers a simple question: only distributions tell what it costs."""
    import torch
    from transformers import DynamicCache

    from tuner.engines.transformers.scorer import TransformersScorer
    from tuner.engines.transformers.session import TransformersSession

    folder = variants.path("transformers", "f32")
    scorer = TransformersScorer()
    scorer.load(folder, {})
    request = {**quality.reference_request(tmp_path / "exact.npz"), "positions": 160, "reply_tokens": 16}
    scoring.handle("score_reference", scorer, request)
    update = DynamicCache.update

    def rounded(values: torch.Tensor) -> torch.Tensor:
        step = values.abs().amax(dim=-1, keepdim=True) / 7
        return (values / step).round() * step

    def coarse(cache: Any, keys: torch.Tensor, values: torch.Tensor, *rest: Any, **options: Any) -> Any:
        return update(cache, rounded(keys), rounded(values), *rest, **options)

    exact = scoring.handle("score_compare", scorer, {"reference": request["path"]})
    monkeypatch.setattr(DynamicCache, "update", coarse)
    found = scoring.handle("score_compare", scorer, {"reference": request["path"]})
    scorer.close()
    session = TransformersSession()
    session.load(folder, {})
    session.configure({"n_threads": 1, "n_threads_batch": 1}, 64, 1)
    prompt = session.tokenize("The capital of France is")
    (answer,) = finish(session, [session.add(prompt, 8, ignore_eos=True)])
    assert b"Paris" in session.detokenize([token.token for token in answer])
    session.close()
    assert quality.summarise_quality(exact).meets(QUALITY_LEVELS["near-lossless"])
    assert not quality.summarise_quality(found).meets(QUALITY_LEVELS["near-lossless"])
