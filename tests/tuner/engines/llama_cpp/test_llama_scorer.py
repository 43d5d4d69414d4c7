"""The real scorer on the demo model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.builds import safe
from tuner.engines.base import EngineError
from tuner.engines.llama_cpp.scorer import CONTEXT_TOKENS, LlamaScorer
from tuner.engines.llama_cpp.session import LlamaSession

pytestmark = pytest.mark.real

SETTINGS = safe("llama_cpp", {"repack": True, "n_threads": 1})
TEXT = "When it rains in the mountains, the rivers rise and the valleys below are flooded within hours. " * 6


@pytest.fixture(scope="module")
def scorer(f16_model: Path) -> Iterator[LlamaScorer]:
    opened = LlamaScorer()
    opened.load(f16_model, SETTINGS)
    yield opened
    opened.close()


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def test_logits_of_every_position(scorer: LlamaScorer) -> None:
    tokens = scorer.tokenize(TEXT)[:100]
    scorer.start()
    whole = scorer.feed(tokens)
    assert whole.shape == (100, 49152)
    assert whole.dtype == np.float32
    scorer.start()
    parts = np.concatenate([scorer.feed(tokens[:30]), scorer.feed(tokens[30:])])
    assert np.array_equal(whole.argmax(axis=1), parts.argmax(axis=1))
    # A text that is repeated is foreseen: by its second sentence most tokens are the likeliest ones.
    assert np.mean(whole[40:-1].argmax(axis=1) == tokens[41:]) > 0.8


def test_the_likeliest_token_is_what_the_session_says(scorer: LlamaScorer, f16_model: Path) -> None:
    session = LlamaSession()
    session.load(f16_model, SETTINGS)
    session.configure({"n_threads": 1, "n_threads_batch": 1, "n_ubatch": 64}, 128, 1)
    tokens = session.tokenize("The capital of France is")
    session.add(tokens, 1)
    (said,) = session.step()
    session.close()
    scorer.start()
    assert scorer.feed(tokens)[-1].argmax() == said.token


def test_e20_a_quantized_kv_cache_is_seen(scorer: LlamaScorer, f16_model: Path) -> None:
    tokens = scorer.tokenize(TEXT)[:96]
    scorer.start()
    exact = log_probabilities(scorer.feed(tokens))
    coarse = LlamaScorer()
    coarse.load(f16_model, {**SETTINGS, "type_k": "q4_0", "type_v": "q4_0"})
    coarse.start()
    other = log_probabilities(coarse.feed(tokens))
    coarse.close()
    divergence = float(np.mean(np.sum(np.exp(exact) * (exact - other), axis=1)))
    assert 1e-3 < divergence < 1


def test_a_text_beyond_the_context_is_refused(scorer: LlamaScorer) -> None:
    scorer.start()
    with pytest.raises(EngineError, match=f"allowed: {CONTEXT_TOKENS}"):
        scorer.feed([1] * (CONTEXT_TOKENS + 1))
    with pytest.raises(EngineError, match="outside the vocabulary"):
        scorer.feed([49152])
