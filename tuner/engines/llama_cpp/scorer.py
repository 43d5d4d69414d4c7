"""The llama.cpp scorer: logits after every token of a text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.llama_cpp.context import Context, LoadedModel
from tuner.engines.llama_cpp.native import low
from tuner.engines.llama_cpp.variants import FLOAT_TYPES

CHUNK = 64
"""Positions per call of the engine: their logits fill 64 x vocabulary floats."""

CONTEXT_TOKENS = 2048
"""The longest text between two `start` calls."""


class LlamaScorer:
    """Implements `tuner.engines.base.Scorer` on `n_threads` threads, else all CPUs of its process."""

    def __init__(self) -> None:
        self._model: LoadedModel | None = None
        self._context: Context | None = None
        self._position = 0

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a model; beside the threads, `type_k`, `type_v`, `flash_attn` and `repack` count.

        A V cache that is quantized works with flash attention only, so that implies it.
        """
        self._model = LoadedModel(path, settings)
        kept = {name: settings[name] for name in ("type_k", "type_v", "flash_attn") if name in settings}
        if str(kept.get("type_v", "f16")) not in FLOAT_TYPES:
            kept["flash_attn"] = "on"
        self._context = Context(self._model, {**kept, "n_ubatch": CHUNK}, CONTEXT_TOKENS, 1, outputs=CHUNK)
        given = settings.get("n_threads")
        threads = given if isinstance(given, int) else len(os.sched_getaffinity(0))
        self._context.set_threads(threads, threads)

    def tokenize(self, text: str) -> list[int]:
        """As the session's."""
        return self._loaded().vocabulary.tokenize(text)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """As the session's."""
        return self._loaded().vocabulary.chat_prompt(messages)

    def start(self) -> None:
        """Forget all tokens."""
        self._ready().keep(0, 0)
        self._position = 0

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits of shape (len(tokens), vocabulary), a copy; EngineError past CONTEXT_TOKENS."""
        context, vocabulary = self._ready(), self._loaded().vocabulary
        vocabulary.check(tokens)
        if self._position + len(tokens) > CONTEXT_TOKENS:
            raise EngineError(f"text of {self._position + len(tokens)} tokens; allowed: {CONTEXT_TOKENS}")
        logits = np.empty((len(tokens), vocabulary.size), dtype=np.float32)
        for begin in range(0, len(tokens), CHUNK):
            part = tokens[begin : begin + CHUNK]
            context.batch.put(0, part, self._position, 0, outputs=len(part))
            context.decode(len(part))
            self._position += len(part)
            rows = np.ctypeslib.as_array(low.llama_get_logits(context.handle), (len(part), vocabulary.size))
            logits[begin : begin + len(part)] = rows
        return logits

    def close(self) -> None:
        """Free context and model; twice is once."""
        if self._context is not None:
            self._context.close()
            self._context = None
        if self._model is not None:
            self._model.close()
            self._model = None

    def _loaded(self) -> LoadedModel:
        if self._model is None:
            raise EngineError("no model is loaded")
        return self._model

    def _ready(self) -> Context:
        if self._context is None:
            raise EngineError("no model is loaded")
        return self._context
