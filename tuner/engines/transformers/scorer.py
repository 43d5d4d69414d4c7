"""The Transformers scorer: logits after every token of a text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.slots import check_tokens
from tuner.engines.transformers.opened import Opened, TorchCache


class TransformersScorer:
    """Implements `tuner.engines.base.Scorer` on `n_threads` threads, else all CPUs of its process."""

    def __init__(self) -> None:
        self._opened: Opened | None = None
        self._cache: TorchCache | None = None

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a folder."""
        self._opened = Opened(path, settings)
        given = settings.get("n_threads")
        torch.set_num_threads(given if isinstance(given, int) else len(os.sched_getaffinity(0)))
        self._cache = TorchCache(self._opened)

    def tokenize(self, text: str) -> list[int]:
        """As the session's."""
        return self._model().text.tokenize(text)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """As the session's."""
        return self._model().text.chat_prompt(messages)

    def start(self) -> None:
        """Forget all tokens."""
        self._cache = TorchCache(self._model())

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits of shape (len(tokens), vocabulary)."""
        check_tokens(tokens, self._model().vocabulary_size)
        if self._cache is None:
            raise EngineError("no model is loaded")
        return self._cache.logits(tokens)

    def close(self) -> None:
        """Let the model go; twice is once."""
        self._opened = self._cache = None

    def _model(self) -> Opened:
        if self._opened is None:
            raise EngineError("no model is loaded")
        return self._opened
