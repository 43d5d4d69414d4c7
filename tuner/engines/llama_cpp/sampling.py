"""Native sampler chains: how one sequence chooses its next token without its logits leaving the engine."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tuner.engines.base import EngineError, Sampling
from tuner.engines.llama_cpp.native import low

PENALTY_WINDOW = 64
"""Tokens that a repetition penalty looks back on, the engine's own default."""


class Sampler:
    """One sequence's chain; `close` frees it."""

    def __init__(self, sampling: Sampling, vocabulary_size: int, prompt: Sequence[int]) -> None:
        """Greedy at temperature 0, else a draw from what top-k, top-p, min-p and temperature leave.

        Raises EngineError for values outside their range.
        """
        if sampling.temperature < 0 or sampling.repetition_penalty <= 0:
            raise EngineError(
                f"temperature={sampling.temperature}, repetition_penalty={sampling.repetition_penalty};"
                " allowed: temperature >= 0 and repetition_penalty > 0"
            )
        self.handle: Any = low.llama_sampler_chain_init(low.llama_sampler_chain_default_params())
        if sampling.repetition_penalty != 1.0:
            self._add(
                low.llama_sampler_init_penalties(
                    vocabulary_size, PENALTY_WINDOW, sampling.repetition_penalty, 0.0, 0.0
                )
            )
            for token in prompt[-PENALTY_WINDOW:]:
                low.llama_sampler_accept(self.handle, token)
        if sampling.temperature == 0:
            self._add(low.llama_sampler_init_greedy())
            return
        if sampling.top_k > 0:
            self._add(low.llama_sampler_init_top_k(sampling.top_k))
        if sampling.top_p < 1:
            self._add(low.llama_sampler_init_top_p(sampling.top_p, 1))
        if sampling.min_p > 0:
            self._add(low.llama_sampler_init_min_p(sampling.min_p, 1))
        self._add(low.llama_sampler_init_temp(ctypes.c_float(sampling.temperature)))
        self._add(low.llama_sampler_init_dist(sampling.seed & 0xFFFFFFFF))

    def close(self) -> None:
        """Free the chain with its parts; twice is once."""
        if self.handle:
            low.llama_sampler_free(self.handle)
            self.handle = None

    def _add(self, part: Any) -> None:
        low.llama_sampler_chain_add(self.handle, part)
