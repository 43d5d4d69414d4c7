"""The OpenVINO session: a compiled model, and one generation loop over its KV caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from profiles.vocabulary import Setting
from tuner.engines.base import Built, EngineError
from tuner.engines.looped import LoopedSession, count_of
from tuner.engines.openvino import native
from tuner.engines.openvino.batches import BatchLoop
from tuner.engines.openvino.caches import OwnCache, SharedCache
from tuner.engines.openvino.graph import Graph
from tuner.engines.openvino.text import Text
from tuner.engines.slots import SlotLoop

WHOLE_PROMPT = 1 << 20
"""Prompt tokens a step, where nothing limits them."""


class OpenVinoSession(LoopedSession[SlotLoop]):
    """Implements `tuner.engines.base.Session`; only `cancel` may be called from another thread."""

    def __init__(self) -> None:
        super().__init__()
        self._graph: Graph | None = None
        self._text: Text | None = None
        self._made_for: tuple[int, int] | None = None

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Compile the model of a folder; EngineError with the engine's reason when it refuses."""
        self._text = Text(path)
        self._graph = Graph(path, settings)

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        """Make the caches anew where their size or number changed."""
        places = count_of(settings, "active_streams", streams)
        if self._loop is None or self._made_for != (places, context_tokens):
            self._loop = None
            self._loop = self._new_loop(places, context_tokens)
            self._made_for = (places, context_tokens)
        self._loop.prefill_chunk = count_of(settings, "prefill_chunk", WHOLE_PROMPT)

    def effective(self) -> Mapping[str, Setting]:
        """By the compiled model's properties, and by the loop's own numbers."""
        places, _context_tokens = self._made_for or (1, 0)
        return {
            **self._opened().effective(),
            "active_streams": places,
            "prefill_chunk": self._ready().prefill_chunk,
        }

    def built(self) -> Built:
        """Versions, and what OpenVINO computes with."""
        return Built(native.version(), native.build(), self._opened().facts())

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids, control tokens understood."""
        return self._written().tokenize(text, leading=leading)

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Bytes; control tokens give none."""
        return self._written().detokenize(tokens)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The folder's own template, never a guessed one."""
        return self._written().chat_prompt(messages)

    def close(self) -> None:
        """Free caches and model; twice is once."""
        self._loop = None
        self._graph = None
        self._text = None

    def _new_loop(self, places: int, context_tokens: int) -> SlotLoop:
        graph, ends = self._opened(), self._written().ends
        if graph.is_paged:
            return BatchLoop(
                SharedCache(graph, places, context_tokens),
                context_tokens=context_tokens,
                vocabulary_size=graph.vocabulary_size,
                ends=ends,
                prefill_chunk=WHOLE_PROMPT,
            )
        return SlotLoop(
            [OwnCache(graph) for _ in range(places)],
            context_tokens=context_tokens,
            vocabulary_size=graph.vocabulary_size,
            ends=ends,
        )

    def _opened(self) -> Graph:
        if self._graph is None:
            raise EngineError("no model is loaded")
        return self._graph

    def _written(self) -> Text:
        if self._text is None:
            raise EngineError("no model is loaded")
        return self._text
