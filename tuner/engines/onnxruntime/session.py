"""The ONNX Runtime session: generators of onnxruntime-genai behind the loop over slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from profiles.vocabulary import Setting
from tuner.engines.base import Built, EngineError
from tuner.engines.looped import LoopedSession, count_of
from tuner.engines.onnxruntime import native
from tuner.engines.onnxruntime.model import OpenedModel
from tuner.engines.slots import SlotLoop


class OnnxSession(LoopedSession[SlotLoop]):
    """Implements `tuner.engines.base.Session`; only `cancel` may be called from another thread.

    Each stream is a generator with a KV cache of its own. They take turns: the batching engine of
    onnxruntime-genai runs on paged attention, which has no CPU kernel (docs/decisions/0020-onnxruntime.md).
    """

    def __init__(self) -> None:
        super().__init__()
        self._model: OpenedModel | None = None
        self._shape = (0, 0)

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a folder; EngineError with the runtime's own line when it refuses."""
        if self._model is not None:
            raise EngineError("the session has a model already")
        self._model = OpenedModel(path, settings)

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        """Apply settings; other lengths or streams are other generators, which drops the sequences."""
        model = self._loaded()
        chunk = count_of(settings, "prefill_chunk", context_tokens)
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

    def close(self) -> None:
        """Free generators and model; twice is once."""
        self._loop = None
        self._model = None

    def _loaded(self) -> OpenedModel:
        if self._model is None:
            raise EngineError("no model is loaded")
        return self._model
