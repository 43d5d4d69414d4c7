"""A session over `llama_cpp.Llama.create_completion` as it comes: the number that people see."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import llama_cpp

from profiles.vocabulary import Setting
from tuner.engines.base import Built, EngineError, Sampling, Token
from tuner.engines.llama_cpp import native
from tuner.engines.llama_cpp.context import LEAST_CONTEXT, context_facts
from tuner.engines.llama_cpp.native import LOG, low

_CACHE_STEP = 256
_SPARE_TOKENS = 8
"""`create_completion` runs past its last token while that ends inside a character."""


class _Watched(llama_cpp.Llama):
    """Notes each token with its time, and shows the caller another one where the model ends its answer.

    The model itself goes on from its own token, so that an exact length costs no bias over the vocabulary.
    """

    def __init__(self, path: Path, context_tokens: int) -> None:
        super().__init__(str(path), n_ctx=context_tokens, verbose=False)
        self.seen: list[tuple[int, int]] = []
        vocabulary = low.llama_model_get_vocab(self.model)
        self._ends = {t for t in range(self.n_vocab()) if low.llama_vocab_is_eog(vocabulary, t)}
        self._plain = next(t for t in range(self.n_vocab()) if t not in self._ends)

    def generate(self, *arguments: Any, **options: Any) -> Generator[int, Sequence[int] | None, None]:
        """The tokens of `Llama.generate`."""
        for token in super().generate(*arguments, **options):
            self.seen.append((token, time.perf_counter_ns()))
            yield self._plain if token in self._ends else token


class EverydaySession:
    """Implements `tuner.engines.base.Session` for one stream with the defaults of `Llama`.

    It takes no settings, samples greedily, and never ends before the length. One call makes a whole answer:
    its tokens are handed out afterwards, one a step, and `now_ns` tells meanwhile when each of them came,
    for the last one when the call returned.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._llama: _Watched | None = None
        self._context_tokens = 0
        self._facts: dict[str, Setting] = {}
        self._waiting: deque[tuple[int, list[int], int, bool]] = deque()
        self._made: deque[tuple[Token, int]] = deque()
        self._told_ns: int | None = None
        self._next_number = 0

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Look at the file; `Llama` opens it together with its context, so that waits for `configure`."""
        _refuse_settings(settings)
        path.stat()
        self._path = path

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        """Open the model with a context that fits; nothing else is asked of `Llama`."""
        _refuse_settings(settings)
        if self._path is None:
            raise EngineError("no model is loaded")
        if streams != 1:
            raise EngineError(f"{streams} streams; create_completion answers one")
        if self._llama is not None and context_tokens == self._context_tokens:
            return
        self.close()
        native.start()
        LOG.clear()
        cells = -(-(context_tokens + _SPARE_TOKENS) // _CACHE_STEP) * _CACHE_STEP
        try:
            self._llama = _Watched(self._path, max(cells, LEAST_CONTEXT))
        except ValueError as error:
            raise EngineError(LOG.last_error(str(error))) from error
        self._context_tokens = context_tokens
        self._facts = context_facts()
        if low.llama_vocab_type(low.llama_model_get_vocab(self._llama.model)) == low.LLAMA_VOCAB_TYPE_NONE:
            self.close()
            raise EngineError("the model has no tokenizer; create_completion answers in text")

    def effective(self) -> Mapping[str, Setting]:
        """What `Llama` chose, read back from its context."""
        handle = self._ready().ctx
        return {
            **self._facts,
            "n_threads": low.llama_n_threads(handle),
            "n_threads_batch": low.llama_n_threads_batch(handle),
            "n_ubatch": low.llama_n_ubatch(handle),
            "n_batch": low.llama_n_batch(handle),
            "n_ctx": low.llama_n_ctx(handle),
        }

    def built(self) -> Built:
        """Versions and library hash."""
        return Built(native.version(), native.build(), {"llama_cpp": native.engine_version()})

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids, control tokens understood."""
        return self._ready().tokenize(text.encode(), add_bos=leading, special=True)

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Bytes."""
        return self._ready().detokenize(list(tokens))

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """None: requests are token ids."""
        del messages
        return None

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
        reuse_prefix: bool = False,
    ) -> int:
        """Queue a greedy request of an exact length; EngineError for any other."""
        if not ignore_eos or (sampling is not None and sampling.temperature != 0):
            raise EngineError("this session answers greedily, to an exact length only")
        if not prompt or max_tokens < 1 or len(prompt) + max_tokens > self._context_tokens:
            raise EngineError(
                f"prompt of {len(prompt)} tokens, max_tokens={max_tokens}: each is at least 1, together"
                f" {self._context_tokens} at most"
            )
        number = self._next_number
        self._next_number += 1
        self._waiting.append((number, list(prompt), max_tokens, reuse_prefix))
        return number

    def step(self) -> list[Token]:
        """The next token; the first one of a request runs its whole call."""
        if not self._made and self._waiting:
            self._complete(*self._waiting.popleft())
        if not self._made:
            self._told_ns = None
            return []
        token, at = self._made.popleft()
        # The time stays at the last token's until somebody asks for more.
        self._told_ns = at
        return [token]

    def cancel(self, sequence: int) -> None:
        """Drop a request and what it made."""
        self._waiting = deque(request for request in self._waiting if request[0] != sequence)
        self._made = deque(made for made in self._made if made[0].sequence != sequence)
        self._told_ns = None

    def reused(self, sequence: int) -> int:
        """This interface does not tell."""
        del sequence
        return 0

    def now_ns(self) -> int:
        """`time.perf_counter_ns`, or when the token came that was handed out last."""
        return time.perf_counter_ns() if self._told_ns is None else self._told_ns

    def close(self) -> None:
        """Free context and model; twice is once."""
        self._waiting.clear()
        self._made.clear()
        if self._llama is not None:
            self._llama.close()
            self._llama = None

    def _complete(self, number: int, prompt: list[int], max_tokens: int, reuse_prefix: bool) -> None:
        llama = self._ready()
        if not reuse_prefix:
            cast("Any", llama).reset()
        llama.seen.clear()
        try:
            llama.create_completion(prompt, max_tokens=max_tokens, temperature=0.0)
        except (RuntimeError, ValueError) as error:
            raise EngineError(LOG.last_error(str(error))) from error
        returned_ns = time.perf_counter_ns()
        seen = llama.seen[:max_tokens]
        for index, (token, at) in enumerate(seen):
            is_last = index == max_tokens - 1
            made = Token(number, token, "length" if is_last else None)
            self._made.append((made, returned_ns if is_last else at))

    def _ready(self) -> _Watched:
        if self._llama is None:
            raise EngineError("the session is not configured")
        return self._llama


def _refuse_settings(settings: Mapping[str, Setting]) -> None:
    if settings:
        raise EngineError(f"takes no settings, got {', '.join(settings)}: it shows what Llama does without")
