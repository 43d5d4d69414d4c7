"""Logits of the simulated engine: one true distribution, blurred by each variant and KV precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.simulated import faults, files, text

# The KL divergence of a blur of s is about s*s/2: chosen so that q8_0 passes near-lossless, q4_0 nothing.
BLUR = {"source": 0.03, "f16": 0.0, "bf16": 0.01, "q8_0": 0.06, "q4_0": 0.75}
KV_BLUR = {"f16": 0.0, "q8_0": 0.02, "q4_0": 0.28}
_SHARPNESS = 4.0


class SimulatedScorer:
    """Implements `tuner.engines.base.Scorer`."""

    def __init__(self) -> None:
        self._variant: str | None = None
        self._blur = 0.0
        self._salt = 0
        self._tokens: list[int] = []

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Read the variant from the file; strikes the faults of loading."""
        variant = files.variant_of(path)
        faults.strike("load", variant)
        kinds = [str(settings.get(name, "f16")) for name in ("type_k", "type_v")]
        self._variant = variant
        self._blur = float(np.hypot(BLUR[variant], max(KV_BLUR[kind] for kind in kinds)))
        self._salt = text.mix(*variant.encode(), *"".join(kinds).encode())

    def tokenize(self, text_: str) -> list[int]:
        """As the session's."""
        return text.tokenize(text_)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """As the session's."""
        return text.chat_prompt(messages)

    def start(self) -> None:
        """Forget all tokens."""
        self._tokens = []

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """The logits after each token, which depend on it and the one before it."""
        if self._variant is None:
            raise EngineError("no model is loaded")
        faults.strike("decode", self._variant)
        rows = []
        for token in tokens:
            before = self._tokens[-1] if self._tokens else 0
            self._tokens.append(token)
            rows.append(self._logits(before, token))
        logits = np.array(rows, dtype=np.float32).reshape(len(rows), text.VOCABULARY_SIZE)
        if "nan" in faults.active(self._variant):
            logits[:] = np.nan
        return logits

    def close(self) -> None:
        """Forget the model."""
        self._variant = None

    def _logits(self, before: int, token: int) -> np.ndarray:
        true = np.random.default_rng(text.mix(before, token)).normal(size=text.VOCABULARY_SIZE)
        noise = np.random.default_rng(text.mix(before, token, self._salt)).normal(size=text.VOCABULARY_SIZE)
        return _SHARPNESS * true + self._blur * noise
