"""The OpenVINO scorer: logits after every token of a text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.openvino.caches import OwnCache, Place, SharedCache
from tuner.engines.openvino.graph import Graph
from tuner.engines.openvino.text import Text
from tuner.engines.slots import check_tokens

CONTEXT_TOKENS = 2048
"""The longest text between two `start` calls."""


class OpenVinoScorer:
    """Implements `tuner.engines.base.Scorer` on the threads of its settings, else all CPUs of its process."""

    def __init__(self) -> None:
        self._graph: Graph | None = None
        self._text: Text | None = None
        self._cache: OwnCache | Place | None = None
        self._position = 0

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Compile the graph that is served: the same operator of attention, the same types."""
        threads = {"inference_num_threads": len(os.sched_getaffinity(0))}
        self._text = Text(path)
        self._graph = graph = Graph(path, {**threads, **settings})
        self._cache = SharedCache(graph, 1, CONTEXT_TOKENS).places[0] if graph.is_paged else OwnCache(graph)

    def tokenize(self, text: str) -> list[int]:
        """As the session's."""
        if self._text is None:
            raise EngineError("no model is loaded")
        return self._text.tokenize(text)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """As the session's."""
        if self._text is None:
            raise EngineError("no model is loaded")
        return self._text.chat_prompt(messages)

    def start(self) -> None:
        """Forget all tokens."""
        if self._cache is not None:
            self._cache.keep(0)
        self._position = 0

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits of shape (len(tokens), vocabulary), a copy; EngineError past CONTEXT_TOKENS."""
        if self._cache is None or self._graph is None:
            raise EngineError("no model is loaded")
        check_tokens(tokens, self._graph.vocabulary_size)
        self._position += len(tokens)
        if self._position > CONTEXT_TOKENS:
            raise EngineError(f"text of {self._position} tokens; allowed: {CONTEXT_TOKENS}")
        rows: np.ndarray = self._cache.feed_all(tokens, range(len(tokens))).copy()
        return rows

    def close(self) -> None:
        """Free the model; twice is once."""
        self._cache = None
        self._graph = None
        self._text = None
