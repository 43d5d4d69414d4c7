"""The llama.cpp session: one generation loop over slots of a living context."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from profiles.vocabulary import Setting
from tuner.engines.base import Built, EngineError, Sampling, Token
from tuner.engines.llama_cpp import native
from tuner.engines.llama_cpp.context import LOAD_SETTINGS, AbortedError, Context, LoadedModel, rebuild_key
from tuner.engines.llama_cpp.native import low
from tuner.engines.llama_cpp.sampling import Sampler
from tuner.engines.looped import count_of

_GREEDY = Sampling()
WORTH_COPYING = 64
"""Tokens: a shorter prefix is computed about as fast as a sequence's cache is copied."""


class _Request:
    """A sequence on its way: `tokens` is its prompt with what was generated so far."""

    __slots__ = ("ignore_eos", "number", "remaining", "reuse_prefix", "sampler", "tokens")

    def __init__(
        self,
        number: int,
        tokens: list[int],
        remaining: int,
        sampler: Sampler,
        ignore_eos: bool,
        reuse_prefix: bool,
    ) -> None:
        self.number = number
        self.tokens = tokens
        self.remaining = remaining
        self.sampler = sampler
        self.ignore_eos = ignore_eos
        self.reuse_prefix = reuse_prefix


class _Slot:
    """A sequence's place in the cache: `tokens[:past]` are computed, also when no request holds it.

    `number` is its last request's, `kept` how many of that one's prompt tokens were there before it.
    """

    __slots__ = ("index", "kept", "number", "past", "request", "tokens")

    def __init__(self, index: int) -> None:
        self.index = index
        self.number = -1
        self.kept = 0
        self.request: _Request | None = None
        self.tokens: list[int] = []
        self.past = 0


class LlamaSession:
    """Implements `tuner.engines.base.Session`; only `cancel` may be called from another thread."""

    def __init__(self) -> None:
        self._model: LoadedModel | None = None
        self._context: Context | None = None
        self._slots: list[_Slot] = []
        self._waiting: deque[_Request] = deque()
        self._cancelled: set[int] = set()
        self._next_number = 0
        self._context_tokens = 0
        self._active_streams = 1
        self._prefill_chunk = 0

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a model file; EngineError with the engine's own line when it refuses."""
        if self._model is not None:
            raise EngineError("the session has a model already")
        self._model = LoadedModel(path, settings)

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        """Apply settings; a context that must be made anew drops its sequences.

        Two settings are the loop's own: at most `active_streams` sequences run while others wait, and at most
        `prefill_chunk` prompt tokens enter a step beside sequences that generate.
        """
        threads = [settings.get(name) for name in ("n_threads", "n_threads_batch")]
        decode, prefill = (count if isinstance(count, int) and count >= 1 else 0 for count in threads)
        if not decode or not prefill:
            raise EngineError(
                f"n_threads={threads[0]}, n_threads_batch={threads[1]}; each must be given, at least 1"
            )
        wanted = rebuild_key(settings, context_tokens, streams)
        if self._context is None or self._context.rebuild_key != wanted:
            self._drop_context()
            self._context = Context(self._loaded(), settings, context_tokens, streams)
            self._slots = [_Slot(index) for index in range(self._context.sequences)]
            self._context_tokens = context_tokens
        self._active_streams = count_of(settings, "active_streams", len(self._slots))
        self._prefill_chunk = count_of(settings, "prefill_chunk", self._context.n_batch)
        self._context.set_threads(decode, prefill)

    def effective(self) -> Mapping[str, Setting]:
        """By the engine's getters, else from its log, else absent."""
        model = self._loaded()
        loaded = {name: model.facts[name] for name in LOAD_SETTINGS if name in model.facts}
        loop: dict[str, Setting] = {
            "active_streams": min(self._active_streams, len(self._slots)),
            "prefill_chunk": min(self._prefill_chunk, self._ready().n_batch),
        }
        return {**loaded, **self._ready().effective(), **loop}

    def built(self) -> Built:
        """Versions, library hash, compile features, facts of the load."""
        features: dict[str, Setting] = {f"cpu.{name}": on for name, on in native.system_info().items()}
        facts = {**features, **self._loaded().facts, "llama_cpp": native.engine_version()}
        return Built(native.version(), native.build(), facts)

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids, control tokens understood."""
        return self._loaded().vocabulary.tokenize(text, leading=leading)

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """Bytes; control tokens give none."""
        return self._loaded().vocabulary.detokenize(tokens)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The file's own template, never a guessed one."""
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
        self._ready()
        tokens = list(prompt)
        if not tokens or max_tokens < 1:
            raise EngineError(
                f"prompt of {len(tokens)} tokens, max_tokens={max_tokens}; each must be at least 1"
            )
        if len(tokens) + max_tokens > self._context_tokens:
            raise EngineError(
                f"prompt of {len(tokens)} + max_tokens={max_tokens} is above the context of"
                f" {self._context_tokens} tokens"
            )
        vocabulary = self._loaded().vocabulary
        vocabulary.check(tokens)
        sampler = Sampler(sampling or _GREEDY, vocabulary.size, tokens)
        number = self._next_number
        self._next_number += 1
        self._waiting.append(_Request(number, tokens, max_tokens, sampler, ignore_eos, reuse_prefix))
        return number

    def step(self) -> list[Token]:
        """Run one batch: a token of each running sequence, then prompt tokens while there is room for them.

        Returns no token when a prompt needs more batches, or when another thread's `cancel` cut it short.
        """
        context = self._ready()
        context.abort_flag[0] = b"\0"
        if self._cancelled:
            self._drop_cancelled()
        if self._waiting:
            self._place()
        fed = self._fill(context)
        if not fed:
            return []
        try:
            context.decode(sum(count for _slot, _request, count in fed))
        except AbortedError:
            self._rewind(fed)
            self._drop_cancelled()
            return []
        except EngineError:
            self._rewind(fed)
            raise
        return self._sample(context, fed)

    def cancel(self, sequence: int) -> None:
        """Drop a sequence before the next batch; one that computes its prompt now is stopped in it."""
        self._cancelled.add(sequence)
        for slot in tuple(self._slots):
            request, missing = slot.request, len(slot.tokens) - slot.past
            computes_prompt = request is not None and request.number == sequence and missing > 1
            if computes_prompt and self._context is not None:
                self._context.abort_flag[0] = b"\1"

    def interrupt(self) -> None:
        """End the step that computes now, without a token and as if it had not begun; from another thread."""
        if self._context is not None:
            self._context.abort_flag[0] = b"\1"

    def reused(self, sequence: int) -> int:
        """What the sequence's slot held when it began."""
        return next((slot.kept for slot in self._slots if slot.number == sequence), 0)

    def now_ns(self) -> int:
        """`time.perf_counter_ns`."""
        return time.perf_counter_ns()

    def close(self) -> None:
        """Free context and model; twice is once."""
        self._drop_context()
        if self._model is not None:
            self._model.close()
            self._model = None

    def _fill(self, context: Context) -> list[tuple[_Slot, _Request, int]]:
        """Fill the batch; running sequences come first, so that a long prompt can't starve them."""
        room = context.n_batch
        at = 0
        fed = []
        busy = [slot for slot in self._slots if slot.request is not None]
        if len(busy) > 1:
            busy.sort(key=lambda slot: len(slot.tokens) - slot.past > 1)
            generating = sum(len(slot.tokens) - slot.past == 1 for slot in busy)
            if generating:
                room = min(room, generating + self._prefill_chunk)
        for slot in busy:
            request = slot.request
            missing = len(slot.tokens) - slot.past
            count = min(missing, room - at)
            if request is None or count == 0:
                continue
            tokens = slot.tokens[slot.past : slot.past + count]
            context.batch.put(at, tokens, slot.past, slot.index, outputs=int(count == missing))
            at += count
            fed.append((slot, request, count))
        return fed

    def _sample(self, context: Context, fed: list[tuple[_Slot, _Request, int]]) -> list[Token]:
        made = []
        last = -1
        vocabulary = self._loaded().vocabulary.handle
        for slot, request, count in fed:
            last += count
            slot.past += count
            if slot.past < len(slot.tokens):
                continue
            token = low.llama_sampler_sample(request.sampler.handle, context.handle, last)
            slot.tokens.append(token)
            request.remaining -= 1
            finish = None
            if not request.ignore_eos and low.llama_vocab_is_eog(vocabulary, token):
                finish = "stop"
            elif request.remaining == 0:
                finish = "length"
            made.append(Token(request.number, token, finish))
            if finish is not None:
                self._release(slot)
        return made

    def _place(self) -> None:
        """Give waiting requests to free slots, in order of arrival, as many as may run at once."""
        free = [slot for slot in self._slots if slot.request is None]
        places = self._active_streams - (len(self._slots) - len(free))
        while free and places > 0 and self._waiting:
            places -= 1
            request = self._waiting.popleft()
            slot, kept = self._take(free, request)
            free.remove(slot)
            slot.request, slot.tokens, slot.past = request, request.tokens, kept
            slot.number, slot.kept = request.number, kept

    def _take(self, free: Sequence[_Slot], request: _Request) -> tuple[_Slot, int]:
        """A free slot, its cache cut back to what the request's prompt shares with it, and how much that is.

        A prefix that another slot holds is copied, so that a system prompt is computed once for all.
        """
        wanted = request.tokens
        if not request.reuse_prefix:
            slot = min(free, key=lambda slot: slot.past)
            return slot, self._cut(slot, 0)
        # The last prompt token is always computed: its logits give the first answer token.
        held = {one.index: min(_common(one, wanted), len(wanted) - 1) for one in self._slots}
        donor, shared = max(held.items(), key=lambda item: item[1])

        def worth(slot: _Slot) -> int:
            """Tokens that need no computing, less those that somebody may come back for."""
            own = held[slot.index]
            return (shared if shared >= own + WORTH_COPYING else own) - (slot.past - own)

        slot = max(free, key=worth)
        if shared < held[slot.index] + WORTH_COPYING:
            return slot, self._cut(slot, held[slot.index])
        return slot, shared if self._ready().copy(donor, slot.index, shared) else 0

    def _cut(self, slot: _Slot, kept: int) -> int:
        """Forget a free slot's cache from `kept` on; what is left of it."""
        return kept if kept >= slot.past or self._ready().keep(slot.index, kept) else 0

    def _rewind(self, fed: list[tuple[_Slot, _Request, int]]) -> None:
        """Bring the cache back to what was computed before a batch that failed."""
        for slot, _request, _count in fed:
            if not self._ready().keep(slot.index, slot.past):
                slot.past = 0

    def _drop_cancelled(self) -> None:
        while self._cancelled:
            number = self._cancelled.pop()
            for slot in self._slots:
                if slot.request is not None and slot.request.number == number:
                    self._release(slot)
            for request in [request for request in self._waiting if request.number == number]:
                self._waiting.remove(request)
                request.sampler.close()

    def _release(self, slot: _Slot) -> None:
        """End a slot's request; what it computed stays for requests that reuse a prefix."""
        if slot.request is not None:
            slot.request.sampler.close()
            slot.request = None
            del slot.tokens[slot.past :]

    def _drop_context(self) -> None:
        for slot in self._slots:
            self._release(slot)
        for request in self._waiting:
            request.sampler.close()
        self._waiting.clear()
        self._cancelled.clear()
        self._slots = []
        if self._context is not None:
            self._context.close()
            self._context = None

    def _loaded(self) -> LoadedModel:
        if self._model is None:
            raise EngineError("no model is loaded")
        return self._model

    def _ready(self) -> Context:
        if self._context is None:
            raise EngineError("the session is not configured")
        return self._context


def _common(slot: _Slot, tokens: Sequence[int]) -> int:
    """How many leading tokens a slot's cache shares with `tokens`."""
    for index, (held, wanted) in enumerate(zip(slot.tokens[: slot.past], tokens, strict=False)):
        if held != wanted:
            return index
    return min(slot.past, len(tokens))
