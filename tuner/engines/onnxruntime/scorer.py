"""The ONNX Runtime scorer: logits after every token of a text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.onnxruntime.model import GeneratorCache, OpenedModel
from tuner.engines.slots import check_tokens

CHUNK = 64
"""Positions per call of the engine: their logits fill 64 x vocabulary floats."""

CONTEXT_TOKENS = 2048
"""The longest text between two `start` calls, where the model's context is not shorter."""


class OnnxScorer:
    """Implements `tuner.engines.base.Scorer` on `intra_op_num_threads` threads, else all its CPUs."""

    def __init__(self) -> None:
        self._model: OpenedModel | None = None
        self._cache: GeneratorCache | None = None
        self._chunk = 1

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a folder; none of the settings changes the answers, so only the threads count."""
        threads = settings.get("intra_op_num_threads", len(os.sched_getaffinity(0)))
        self._model = OpenedModel(
            path, {"intra_op_num_threads": threads, "spinning": "off"}, all_positions=True
        )
        length = int(self._model.configuration.get("context_length", CONTEXT_TOKENS))
        self._cache = self._model.cache(min(CONTEXT_TOKENS, length))
        # A graph that gives the last token's logits only is fed token by token.
        self._chunk = CHUNK if len(self._cache.feed_all([0, 0])) == 2 else 1

    def tokenize(self, text: str) -> list[int]:
        """As the session's."""
        return self._loaded().vocabulary.tokenize(text)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """As the session's."""
        return self._loaded().vocabulary.chat_prompt(messages)

    def start(self) -> None:
        """Forget all tokens."""
        self._ready().keep(0)

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits of shape (len(tokens), vocabulary), a copy; EngineError past the context."""
        cache = self._ready()
        check_tokens(tokens, self._loaded().vocabulary_size)
        begins = range(0, len(tokens), self._chunk)
        return np.concatenate([cache.feed_all(tokens[begin : begin + self._chunk]) for begin in begins])

    def close(self) -> None:
        """Free the model; twice is once."""
        self._cache = None
        self._model = None

    def _loaded(self) -> OpenedModel:
        if self._model is None:
            raise EngineError("no model is loaded")
        return self._model

    def _ready(self) -> GeneratorCache:
        if self._cache is None:
            raise EngineError("no model is loaded")
        return self._cache
