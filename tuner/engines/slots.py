"""A generation loop over KV caches of one sequence each, for engines that compute one sequence at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from tuner.engines.base import EngineError, Sampling, Token
from tuner.engines.choosing import Chooser, Logits

_GREEDY = Sampling()


class Cache(Protocol):
    """A KV cache in an engine, for one sequence."""

    def feed(self, tokens: Sequence[int]) -> Logits:
        """Compute some tokens after what is there; the logits after the last, of shape (vocabulary,).

        After an EngineError it holds an unknown part of them.
        """

    def keep(self, tokens: int) -> int:
        """Forget all but the first `tokens`; how many are left, which is 0 where it can only forget all."""


class _Request:
    """A sequence on its way: `tokens` is its prompt with what was generated so far."""

    __slots__ = ("chooser", "ignore_eos", "number", "remaining", "reuse_prefix", "tokens")

    def __init__(
        self,
        number: int,
        tokens: list[int],
        remaining: int,
        chooser: Chooser,
        ignore_eos: bool,
        reuse_prefix: bool,
    ) -> None:
        self.number = number
        self.tokens = tokens
        self.remaining = remaining
        self.chooser = chooser
        self.ignore_eos = ignore_eos
        self.reuse_prefix = reuse_prefix


class _Slot:
    """A place for a sequence: `tokens[:past]` are in its cache, also when no request holds it.

    `number` is its last request's, `kept` how many of that one's prompt tokens were there before it.
    """

    __slots__ = ("cache", "kept", "number", "past", "request", "tokens")

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.number = -1
        self.kept = 0
        self.request: _Request | None = None
        self.tokens: list[int] = []
        self.past = 0

    def cut(self, tokens: int) -> int:
        """Forget what is in the cache from position `tokens` on; what is left."""
        if tokens < self.past:
            self.past = self.cache.keep(tokens)
        return self.past

    def shared(self, tokens: Sequence[int]) -> int:
        """How many leading tokens the cache shares with a prompt, of which the last is always computed."""
        most = min(self.past, len(tokens) - 1)
        return next((at for at in range(most) if self.tokens[at] != tokens[at]), most)


class SlotLoop:
    """The part of a `Session` that generates; only `cancel` may be called from another thread.

    Sequences take turns: a step computes one of them, a token of it or at most `prefill_chunk` tokens of its
    prompt. A sequence ends at a token of `ends` or at its length.
    """

    def __init__(
        self,
        caches: Sequence[Cache],
        *,
        context_tokens: int,
        vocabulary_size: int,
        ends: frozenset[int],
        prefill_chunk: int | None = None,
    ) -> None:
        self._slots = [_Slot(cache) for cache in caches]
        self._turns = deque(self._slots)
        self._waiting: deque[_Request] = deque()
        self._cancelled: set[int] = set()
        self._next_number = 0
        self._context_tokens = context_tokens
        self._vocabulary_size = vocabulary_size
        self._ends = ends
        self.prefill_chunk = prefill_chunk or context_tokens

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
        check_tokens(tokens, self._vocabulary_size)
        chooser = Chooser(sampling or _GREEDY, tokens)
        number = self._next_number
        self._next_number += 1
        self._waiting.append(_Request(number, tokens, max_tokens, chooser, ignore_eos, reuse_prefix))
        return number

    def step(self) -> list[Token]:
        """Compute the next sequence whose turn it is; no token where its prompt needs another step."""
        self._settle()
        for _ in range(len(self._turns)):
            slot = self._turns[0]
            self._turns.rotate(-1)
            if slot.request is not None:
                return self._compute(slot, slot.request)
        return []

    def cancel(self, sequence: int) -> None:
        """Drop a sequence before the next step."""
        self._cancelled.add(sequence)

    def reused(self, sequence: int) -> int:
        """What the sequence's slot held when it began."""
        return next((slot.kept for slot in self._slots if slot.number == sequence), 0)

    def _settle(self) -> None:
        """Drop what was cancelled, and let waiting requests in."""
        while self._cancelled:
            self._drop(self._cancelled.pop())
        self._place()

    def _compute(self, slot: _Slot, request: _Request) -> list[Token]:
        part = slot.tokens[slot.past : slot.past + self.prefill_chunk]
        try:
            logits = slot.cache.feed(part)
        except EngineError:
            slot.past = slot.cache.keep(0)
            raise
        return self._advance(slot, request, len(part), logits)

    def _advance(self, slot: _Slot, request: _Request, computed: int, logits: Logits) -> list[Token]:
        """Some tokens more are in the cache; the next token where they were the last."""
        slot.past += computed
        if slot.past < len(slot.tokens):
            return []
        token = request.chooser.choose(logits)
        slot.tokens.append(token)
        request.remaining -= 1
        finish = None
        if token in self._ends and not request.ignore_eos:
            finish = "stop"
        elif request.remaining == 0:
            finish = "length"
        if finish is not None:
            self._release(slot)
        return [Token(request.number, token, finish)]

    def _place(self) -> None:
        """Give waiting requests to free slots, in order of arrival."""
        free = [slot for slot in self._slots if slot.request is None]
        while free and self._waiting:
            request = self._waiting.popleft()
            shared = {id(slot): slot.shared(request.tokens) if request.reuse_prefix else 0 for slot in free}
            # The longest prefix; of equal ones the slot whose cache is the least loss.
            slot = max(free, key=lambda slot: (shared[id(slot)], -slot.past))
            free.remove(slot)
            slot.kept = slot.cut(shared[id(slot)])
            slot.request, slot.tokens, slot.number = request, request.tokens, request.number

    def _drop(self, number: int) -> None:
        for slot in self._slots:
            if slot.request is not None and slot.request.number == number:
                self._release(slot)
        self._waiting = deque(request for request in self._waiting if request.number != number)

    def _release(self, slot: _Slot) -> None:
        """End a slot's request; what it computed stays for requests that reuse a prefix."""
        slot.request = None
        del slot.tokens[slot.past :]


def check_tokens(tokens: Sequence[int], vocabulary_size: int) -> None:
    """EngineError where a token id is outside the vocabulary."""
    for token in (min(tokens, default=0), max(tokens, default=0)):
        if not 0 <= token < vocabulary_size:
            raise EngineError(f"token {token} is outside the vocabulary of {vocabulary_size}")
