"""ONNX Runtime's variants of the demo model, made by the whole chain from its GGUF file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profiles.vocabulary import QUALITY_LEVELS
from tests.support.variants import Variants, start
from tuner.engines.onnxruntime import graphs, tiny
from tuner.engines.onnxruntime.scorer import OnnxScorer
from tuner.measurement.isolation import Deadlines
from tuner.models.contents import describe

pytestmark = [pytest.mark.torch, pytest.mark.real]


def test_float32_is_the_reference_but_for_rounding(variants: Variants) -> None:
    found = variants.quality("onnxruntime", "fp32")
    assert found.kl_divergence <= 0.002
    assert found.top1_agreement >= 0.995


def test_eight_bits_are_near_lossless(variants: Variants) -> None:
    found = variants.quality("onnxruntime", "int8_b32")
    assert found.meets(QUALITY_LEVELS["near-lossless"]), found
    assert found.kl_divergence > variants.quality("onnxruntime", "fp32").kl_divergence


def test_outliers_cost_less_in_blocks(variants: Variants) -> None:
    mixed, dynamic = variants.quality("onnxruntime", "int8_mixed"), variants.quality("onnxruntime", "int8")
    assert mixed.meets(QUALITY_LEVELS["balanced"]), mixed
    assert mixed.kl_divergence < 0.3 * dynamic.kl_divergence


@pytest.mark.parametrize("label", ["int8", "int4_b32"])
def test_fewer_bits_cost_more(variants: Variants, label: str) -> None:
    found = variants.quality("onnxruntime", label)
    assert found.kl_divergence > variants.quality("onnxruntime", "int8_b32").kl_divergence
    assert found.top1_agreement > 0.5


def test_a_variant_made_of_another_is_described_as_itself(variants: Variants) -> None:
    full, eight = (
        describe(label, variants.path("onnxruntime", label), variants.model, "onnx")
        for label in ("fp32", "int8")
    )
    assert full.digest != eight.digest
    assert eight.bits_per_weight < 0.6 * full.bits_per_weight
    assert {path.name for path in eight.path.iterdir()} == {path.name for path in full.path.iterdir()}


def test_a_made_folder_runs_in_a_session(variants: Variants) -> None:
    with start("onnxruntime", "session", variants.folder) as worker:
        worker.load(variants.path("onnxruntime", "int4_b32"), {"intra_op_num_threads": 1}, Deadlines())
        worker.request("configure", {"settings": {}, "context_tokens": 64, "streams": 1}, 60.0)
        prompt = worker.request("tokenize", {"text": "The capital of France is"}, 60.0)["tokens"]
        answer = worker.request(
            "round", {"prompts": [prompt], "output_tokens": 4, "reuse_prefix": False}, 60.0
        )
    (times,) = answer["token_ns"]
    assert len(times) == 4


def test_the_graph_for_judging_has_the_same_logits(tmp_path: Path) -> None:
    """Made of a graph with the last token's logits, it agrees with one that never was cut."""
    tiny.write(tmp_path / "whole")
    tiny.write(tmp_path / "last", last_only=True)
    graphs.write_all_positions(tmp_path / "last")
    rows = []
    for name in ("whole", "last"):
        scorer = OnnxScorer()
        scorer.load(tmp_path / name, {"intra_op_num_threads": 1})
        scorer.start()
        rows.append(scorer.feed(range(50)))
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-5)


def test_a_graph_of_another_builder_is_refused(tmp_path: Path) -> None:
    tiny.write(tmp_path)
    with pytest.raises(ValueError, match="no node /lm_head/prune/Gather"):
        graphs.write_all_positions(tmp_path)
