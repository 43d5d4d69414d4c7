"""The real scorer: what OpenVINO's variants and types do to the demo model's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiles.vocabulary import Quality, Setting
from tests.support import builds
from tuner.engines.base import EngineError, Scorer
from tuner.engines.openvino import recipes
from tuner.engines.openvino.scorer import CONTEXT_TOKENS, OpenVinoScorer
from tuner.measurement import quality, scoring

pytestmark = pytest.mark.real

EXACT: dict[str, Setting] = {
    "inference_precision_hint": "f32",
    "kv_cache_precision": "f16",
    "dynamic_quantization_group_size": 0,
}
POSITIONS = 192


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The given weights dequantized, on llama.cpp: another implementation than the one that is judged."""
    from tuner.engines.llama_cpp.recipes import make
    from tuner.engines.llama_cpp.scorer import LlamaScorer

    folder = tmp_path_factory.mktemp("reference")
    make(builds.demo_model(), folder / "f16.gguf", {"file_type": "f16"})
    request = quality.reference_request(folder / "reference.npz")
    scorer = LlamaScorer()
    scorer.load(folder / "f16.gguf", builds.safe("llama_cpp", {"repack": True}))
    scoring.handle("score_reference", scorer, {**request, "positions": POSITIONS, "reply_tokens": 16})
    scorer.close()
    return folder / "reference.npz"


@pytest.fixture
def opened() -> Iterator[Callable[[Path, Mapping[str, Setting]], OpenVinoScorer]]:
    scorers: list[OpenVinoScorer] = []

    def load(folder: Path, settings: Mapping[str, Setting]) -> OpenVinoScorer:
        scorers.append(OpenVinoScorer())
        scorers[-1].load(folder, settings)
        return scorers[-1]

    yield load
    for scorer in scorers:
        scorer.close()


def compared(scorer: Scorer, reference: Path) -> Quality:
    found: dict[str, Any] = scoring.handle("score_compare", scorer, {"reference": str(reference)})
    return quality.summarise_quality(found)


@pytest.mark.parametrize("backend", ["sdpa", "paged"])
def test_the_most_exact_variant_agrees_with_the_reference(
    backend: str,
    f16_folder: Path,
    reference: Path,
    opened: Callable[[Path, Mapping[str, Setting]], OpenVinoScorer],
) -> None:
    """The same text in the same tokens, or `score_compare` raises."""
    found = compared(opened(f16_folder, {**EXACT, "attention_backend": backend}), reference)
    assert found.kl_divergence <= 0.002
    assert found.top1_agreement >= 0.995


def test_the_reader_rounds_the_offsets_of_q4_1(
    demo_folder: Path, reference: Path, opened: Callable[[Path, Mapping[str, Setting]], OpenVinoScorer]
) -> None:
    """So `gguf` of such a file is not its weights: docs/engines.md says so with numbers."""
    found = compared(opened(demo_folder, EXACT), reference)
    assert 0.02 < found.kl_divergence < 0.6


def test_types_without_offsets_are_read_exactly(
    tmp_path: Path, opened: Callable[[Path, Mapping[str, Setting]], OpenVinoScorer]
) -> None:
    """A q8_0 file as it is, against the same file dequantized first; and dequantized as a graph."""
    from tuner.engines.llama_cpp.recipes import make
    from tuner.engines.openvino import widen

    make(builds.demo_model(), tmp_path / "q8_0.gguf", {"file_type": "q8_0"})
    widen.make(tmp_path / "q8_0.gguf", tmp_path / "f16.gguf", {})
    recipes.make(tmp_path / "q8_0.gguf", tmp_path / "q8_0", {"weights": "given"})
    recipes.make(tmp_path / "f16.gguf", tmp_path / "f16", {"weights": "given"})
    recipes.make(tmp_path / "q8_0", tmp_path / "folded", {"weights": "f16"})
    rows = {}
    for name in ("q8_0", "f16", "folded"):
        scorer = opened(tmp_path / name, EXACT)
        scorer.start()
        rows[name] = scorer.feed(scorer.tokenize("The rivers rise when it rains in the mountains."))
    assert np.abs(rows["q8_0"] - rows["f16"]).max() < 0.1
    assert np.abs(rows["folded"] - rows["f16"]).max() < 0.1


@pytest.mark.parametrize(("weights", "most"), [("int8", 0.02), ("int4", 1.0)])
def test_integers_cost_what_they_cost(
    weights: str,
    most: float,
    f16_folder: Path,
    reference: Path,
    tmp_path: Path,
    opened: Callable[[Path, Mapping[str, Setting]], OpenVinoScorer],
) -> None:
    recipes.make(f16_folder, tmp_path / weights, {"weights": weights, "group_size": 64})
    smaller = (tmp_path / weights / "openvino_model.bin").stat().st_size
    assert smaller < 0.6 * (f16_folder / "openvino_model.bin").stat().st_size
    found = compared(opened(tmp_path / weights, EXACT), reference)
    assert 1e-5 < found.kl_divergence < most


def test_e20_an_8_bit_kv_cache_is_seen(
    f16_folder: Path, opened: Callable[[Path, Mapping[str, Setting]], OpenVinoScorer]
) -> None:
    exact, coarse = opened(f16_folder, EXACT), opened(f16_folder, {**EXACT, "kv_cache_precision": "u8"})
    tokens = exact.tokenize(
        "When it rains in the mountains, the rivers rise and the valleys are flooded. " * 6
    )
    rows = []
    for scorer in (exact, coarse):
        scorer.start()
        rows.append(np.concatenate([scorer.feed(tokens[:60]), scorer.feed(tokens[60:90])]))
    difference = np.abs(rows[0] - rows[1]).max(axis=1)
    assert difference.max() > 1e-3
    assert np.mean(rows[0].argmax(axis=1) == rows[1].argmax(axis=1)) > 0.9


def test_a_text_beyond_the_context_is_refused(
    demo_folder: Path, opened: Callable[[Path, Mapping[str, Setting]], OpenVinoScorer]
) -> None:
    scorer = opened(demo_folder, EXACT)
    with pytest.raises(EngineError, match=f"allowed: {CONTEXT_TOKENS}"):
        scorer.feed([1] * (CONTEXT_TOKENS + 1))
    scorer.start()
    with pytest.raises(EngineError, match="outside the vocabulary"):
        scorer.feed([49152])
