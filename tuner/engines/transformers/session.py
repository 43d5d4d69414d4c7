"""The Transformers session: an own decode loop over a KV cache for each stream, one computed at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import transformers

from profiles.vocabulary import Setting
from tuner.engines.base import Built, EngineError
from tuner.engines.looped import LoopedSession
from tuner.engines.slots import SlotLoop
from tuner.engines.transformers import build
from tuner.engines.transformers.beams import BeamLoop
from tuner.engines.transformers.opened import Opened, TorchCache


class TransformersSession(LoopedSession[SlotLoop | BeamLoop]):
    """Implements `tuner.engines.base.Session`."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: Opened | None = None
        self._caches: list[TorchCache] = []
        self._made_for: tuple[object, ...] = ()
        self._settings: dict[str, Setting] = {}

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a folder; EngineError with the library's own line when it refuses."""
        if self._opened is not None:
            raise EngineError("the session has a model already")
        self._opened = Opened(path, settings)

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        """Apply settings; another `use_cache`, `beams`, context or number of streams drops the sequences."""
        opened = self._model()
        uses_cache, beams = bool(settings.get("use_cache", True)), int(settings.get("beams", 1))
        made_for = (uses_cache, beams, context_tokens, streams)
        if self._loop is None or made_for != self._made_for:
            if context_tokens < 2 or streams < 1:
                raise EngineError(
                    f"context of {context_tokens} tokens x {streams} streams; at least 2 x 1 are needed"
                )
            if beams > 1:
                self._caches = []
                self._loop = BeamLoop(opened, beams=beams, context_tokens=context_tokens)
            else:
                self._caches = [TorchCache(opened, uses_cache=uses_cache) for _ in range(streams)]
                self._loop = SlotLoop(
                    self._caches,
                    context_tokens=context_tokens,
                    vocabulary_size=opened.vocabulary_size,
                    ends=opened.ends,
                )
            self._made_for = made_for
        threads = [int(settings.get(name, 0)) for name in ("n_threads", "n_threads_batch")]
        if min(threads) < 1:
            raise EngineError(
                f"n_threads={threads[0]}, n_threads_batch={threads[1]}; each must be at least 1"
            )
        self._settings = {"n_threads": _held(threads[0]), "n_threads_batch": _held(threads[1])}
        self._settings |= {"use_cache": uses_cache, "beams": beams}
        for cache in self._caches:
            cache.threads = (threads[0], threads[1])

    def effective(self) -> Mapping[str, Setting]:
        """Thread counts as PyTorch held them when they were set; the others by their getters."""
        opened = self._model()
        return {
            **self._settings,
            "interop_threads": torch.get_num_interop_threads(),
            "attention": opened.attention,
        }

    def built(self) -> Built:
        """Versions, and what the weights really are."""
        opened = self._model()
        facts: dict[str, Setting] = {
            "weights": opened.weights,
            "dtype": opened.dtype,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "mkldnn": torch.backends.mkldnn.is_available(),
            "torch": torch.__version__,
        }
        return Built(transformers.__version__, build.identity(), facts)

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids, control tokens understood."""
        return self._model().text.tokenize(text, leading=leading)

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Bytes; control tokens give none."""
        return self._model().text.detokenize(tokens)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The folder's own template, never a guessed one."""
        return self._model().text.chat_prompt(messages)

    def close(self) -> None:
        """Let the model go; twice is once."""
        self._loop, self._caches, self._opened = None, [], None

    def _model(self) -> Opened:
        if self._opened is None:
            raise EngineError("no model is loaded")
        return self._opened


def _held(threads: int) -> int:
    """The threads that PyTorch takes when it is told so many."""
    torch.set_num_threads(threads)
    held: int = torch.get_num_threads()
    return held
