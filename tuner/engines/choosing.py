"""Chooses the next token from a row of logits, for engines that have no sampler of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tuner.engines.base import EngineError, Sampling

PENALTY_WINDOW = 64
"""Tokens that a repetition penalty looks back on, as llama.cpp does."""

Logits = npt.NDArray[np.float32]


class Chooser:
    """How one sequence chooses: greedy at temperature 0, else a draw from what the filters leave."""

    def __init__(self, sampling: Sampling, prompt: Iterable[int]) -> None:
        """`prompt` counts for the repetition penalty; EngineError for values outside their range."""
        if sampling.temperature < 0 or sampling.repetition_penalty <= 0:
            raise EngineError(
                f"temperature={sampling.temperature}, repetition_penalty={sampling.repetition_penalty};"
                " allowed: temperature >= 0 and repetition_penalty > 0"
            )
        self._sampling = sampling
        self._recent = deque(prompt, maxlen=PENALTY_WINDOW)
        self._random = np.random.default_rng(sampling.seed & 0xFFFFFFFF)

    def choose(self, logits: Logits) -> int:
        """The next token after these logits, of shape (vocabulary,); they stay as they are."""
        sampling = self._sampling
        if sampling.repetition_penalty != 1.0:
            logits = self._penalised(logits)
        token = int(logits.argmax()) if sampling.temperature == 0 else self._drawn(logits)
        self._recent.append(token)
        return token

    def _penalised(self, logits: Logits) -> Logits:
        """Less likely where a token came lately (Keskar et al. 2019, CTRL, section 4.1)."""
        seen = np.fromiter(set(self._recent), np.int64)
        changed = logits.copy()
        values = changed[seen]
        penalty = self._sampling.repetition_penalty
        changed[seen] = np.where(values > 0, values / penalty, values * penalty)
        return changed

    def _drawn(self, logits: Logits) -> int:
        """Filters see the distribution at temperature 1, most likely tokens first, as in llama.cpp."""
        sampling = self._sampling
        kept = min(sampling.top_k, logits.size) if sampling.top_k > 0 else logits.size
        tokens = np.argpartition(logits, -kept)[-kept:]
        tokens = tokens[np.argsort(-logits[tokens], kind="stable")]
        scaled = logits[tokens].astype(np.float64)
        likely = _softmax(scaled)
        # The token that reaches top_p is still in; min_p is a share of the most likely one's.
        within = (np.cumsum(likely) - likely < sampling.top_p) & (likely >= sampling.min_p * likely[0])
        within[0] = True
        tokens, scaled = tokens[within], scaled[within]
        return int(self._random.choice(tokens, p=_softmax(scaled / sampling.temperature)))


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    masses = np.exp(logits - logits.max())
    found: npt.NDArray[np.float64] = masses / masses.sum()
    return found
