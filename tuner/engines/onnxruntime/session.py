"""The ONNX Runtime session: generators of onnxruntime-genai behind the loop over slots."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from profiles.vocabulary import Setting
from tuner.engines.base import Built, EngineError, Sampling, Token
from tuner.engines.onnxruntime import native
from tuner.engines.onnxruntime.model import OpenedModel
from tuner.engines.slots import SlotLoop


class OnnxSession:
    """Implements `tuner.engines.base.Session`; only `cancel` may be called from another thread.

    Each stream is a generator with a KV cache of its own. They take turns: the batching engine of
    onnxruntime-genai runs on paged attention, which has no CPU kernel (docs/decisions/0020-onnxruntime.md).
    """

    def __init__(self) -> None:
        self._model: OpenedModel | None = None
        self._loop: SlotLoop | None = None
        self._shape = (0, 0)

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a folder; EngineError with the runtime's own line when it refuses."""
        if self._model is not None:
            raise EngineError("the session has a model already")
        self._model = OpenedModel(path, settings)

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        """Apply settings; other lengths or streams are other generators, which drops the sequences."""
        model = self._loaded()
        chunk = settings.get("prefill_chunk", context_tokens)
        if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
            raise EngineError(f"prefill_chunk={chunk}; at least 1 is needed")
        if context_tokens < 2 or streams < 1:
            raise EngineError(
                f"context of {context_tokens} tokens x {streams} streams; at least 2 x 1 are needed"
            )
        if self._loop is None or self._shape != (context_tokens, streams):
            self._loop = None
            self._loop = SlotLoop(
                [model.cache(context_tokens) for _ in range(streams)],
                context_tokens=context_tokens,
                vocabulary_size=model.vocabulary_size,
                ends=model.ends,
            )
            self._shape = (context_tokens, streams)
        self._loop.prefill_chunk = chunk

    def effective(self) -> Mapping[str, Setting]:
        """From the session's own log; the loop's own setting as it is."""
        return {**self._loaded().effective, "prefill_chunk": self._ready().prefill_chunk}

    def built(self) -> Built:
        """Versions and library hash."""
        return Built(native.version(), native.build(), {"onnxruntime": native.runtime_version()})

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids, control tokens understood."""
        return self._loaded().vocabulary.tokenize(text, leading=leading)

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Bytes; control tokens give none."""
        return self._loaded().vocabulary.detokenize(tokens)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The folder's own template."""
        return self._loaded().vocabulary.chat_prompt(messages)

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
        reuse_prefix: bool = False,
    ) -> int:
        """Queue a request; EngineError for a prompt that is empty, foreign or too long for the context."""
        return self._ready().add(
            prompt, max_tokens, sampling=sampling, ignore_eos=ignore_eos, reuse_prefix=reuse_prefix
        )

    def step(self) -> list[Token]:
        """A token of the stream whose turn it is, or a part of its prompt."""
        return self._ready().step()

    def cancel(self, sequence: int) -> None:
        """Drop a sequence before the next step: a running one can't be stopped from Python."""
        if self._loop is not None:
            self._loop.cancel(sequence)

    def reused(self, sequence: int) -> int:
        """What its generator was rewound to when it began."""
        return self._ready().reused(sequence)

    def now_ns(self) -> int:
        """`time.perf_counter_ns`."""
        return time.perf_counter_ns()

    def close(self) -> None:
        """Free generators and model; twice is once."""
        self._loop = None
        self._model = None

    def _loaded(self) -> OpenedModel:
        if self._model is None:
            raise EngineError("no model is loaded")
        return self._model

    def _ready(self) -> SlotLoop:
        if self._loop is None:
            raise EngineError("the session is not configured")
        return self._loop
