"""The real scorer: what OpenVINO's variants and types do to the demo model's answers.

What holds of any weights is asked of a small model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiles.vocabulary import Quality, Setting
from tests.support import builds
from tests.support.folders import write_random_folder
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

Load = Callable[[Path, Mapping[str, Setting]], OpenVinoScorer]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The given weights dequantized, on llama.cpp: another implementation than the one that is judged."""
    return referred_by_llama_cpp(builds.demo_model(), tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def exact(small_f16_folder: Path) -> Iterator[OpenVinoScorer]:
    """The small model in f16."""
    scorer = OpenVinoScorer()
    scorer.load(small_f16_folder, EXACT)
    yield scorer
    scorer.close()


@pytest.fixture(scope="module")
def small_reference(exact: OpenVinoScorer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return referred(exact, tmp_path_factory.mktemp("reference") / "small.npz")


@pytest.fixture
def opened() -> Iterator[Load]:
    scorers: list[OpenVinoScorer] = []

    def load(folder: Path, settings: Mapping[str, Setting]) -> OpenVinoScorer:
        scorers.append(OpenVinoScorer())
        scorers[-1].load(folder, settings)
        return scorers[-1]

    yield load
    for scorer in scorers:
        scorer.close()


def referred(scorer: Scorer, path: Path) -> Path:
    request = {**quality.reference_request(path), "positions": POSITIONS, "reply_tokens": 16}
    scoring.handle("score_reference", scorer, request)
    return path


def referred_by_llama_cpp(model: Path, folder: Path) -> Path:
    from tuner.engines.llama_cpp.recipes import make
    from tuner.engines.llama_cpp.scorer import LlamaScorer

    make(model, folder / "f16.gguf", {"file_type": "f16"})
    scorer = LlamaScorer()
    # Two threads that wait for each other by spinning collapse beside a busy neighbour.
    scorer.load(folder / "f16.gguf", {**builds.safe("llama_cpp", {"repack": True}), "n_threads": 1})
    referred(scorer, folder / "reference.npz")
    scorer.close()
    return folder / "reference.npz"


def frequencies(folder: Path) -> list[np.ndarray]:
    """Constants that have the shape of the rotation's frequencies."""
    import openvino as ov

    nodes = ov.Core().read_model(folder / "openvino_model.xml").get_ops()
    return [
        node.data for node in nodes if node.get_type_name() == "Constant" and list(node.shape) == [1, 32, 1]
    ]


def compared(scorer: Scorer, reference: Path) -> Quality:
    found: dict[str, Any] = scoring.handle("score_compare", scorer, {"reference": str(reference)})
    return quality.summarise_quality(found)


@pytest.mark.parametrize("backend", ["sdpa", "paged"])
def test_the_most_exact_variant_agrees_with_the_reference(
    backend: str, f16_folder: Path, reference: Path, opened: Load
) -> None:
    """The same text in the same tokens, or `score_compare` raises."""
    found = compared(opened(f16_folder, {**EXACT, "attention_backend": backend}), reference)
    assert found.kl_divergence <= 0.002
    assert found.top1_agreement >= 0.995


def test_the_reader_rounds_the_offsets_of_q4_1(demo_folder: Path, reference: Path, opened: Load) -> None:
    """So `gguf` of such a file is not its weights: docs/engines.md says so with numbers."""
    found = compared(opened(demo_folder, EXACT), reference)
    assert 0.02 < found.kl_divergence < 0.6


def test_types_without_offsets_are_read_exactly(small_model: Path, tmp_path: Path, opened: Load) -> None:
    """A q8_0 file as it is, against the same file dequantized first; and dequantized as a graph."""
    from tuner.engines.llama_cpp.recipes import make
    from tuner.engines.openvino import widen

    make(small_model, tmp_path / "q8_0.gguf", {"file_type": "q8_0"})
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


def test_frequencies_are_not_rounded_with_the_weights(small_f16_folder: Path) -> None:
    """In f16 they are off by up to 0.0002 a token: half a radian after 2000."""
    constants = frequencies(small_f16_folder)
    assert [one.dtype for one in constants] == [np.float32]
    np.testing.assert_allclose(constants[0].ravel(), 1e4 ** -(np.arange(32) / 32), rtol=1e-6)


def test_the_frequencies_of_llama_3_1_are_kept(tmp_path: Path, opened: Load) -> None:
    """Its GGUF files divide them by factors, which the reader leaves out."""
    from tuner.engines.conversion import to_gguf

    rope = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32}  # fmt: skip
    folder = write_random_folder(tmp_path / "folder", "llama-bpe", rope_parameters=rope)
    to_gguf.make(folder, tmp_path / "made.gguf", {})
    reference = referred_by_llama_cpp(tmp_path / "made.gguf", tmp_path)
    recipes.make(tmp_path / "f16.gguf", tmp_path / "f16", {"weights": "given"})
    assert compared(opened(tmp_path / "f16", EXACT), reference).kl_divergence <= 0.002


@pytest.mark.parametrize(("weights", "most"), [("int8", 0.02), ("int4", 2.0)])
def test_integers_cost_what_they_cost(
    weights: str, most: float, small_f16_folder: Path, small_reference: Path, tmp_path: Path, opened: Load
) -> None:
    recipes.make(small_f16_folder, tmp_path / weights, {"weights": weights, "group_size": 64})
    smaller = (tmp_path / weights / "openvino_model.bin").stat().st_size
    assert smaller < 0.6 * (small_f16_folder / "openvino_model.bin").stat().st_size
    found = compared(opened(tmp_path / weights, EXACT), small_reference)
    assert 1e-5 < found.kl_divergence < most


def test_e20_an_8_bit_kv_cache_is_seen(exact: OpenVinoScorer, small_f16_folder: Path, opened: Load) -> None:
    coarse = opened(small_f16_folder, {**EXACT, "kv_cache_precision": "u8"})
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


def test_a_text_beyond_the_context_is_refused(exact: OpenVinoScorer) -> None:
    exact.start()
    with pytest.raises(EngineError, match=f"allowed: {CONTEXT_TOKENS}"):
        exact.feed([1] * (CONTEXT_TOKENS + 1))
    exact.start()
    with pytest.raises(EngineError, match="outside the vocabulary"):
        exact.feed([49152])
