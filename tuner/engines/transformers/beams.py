"""Beam search by the library's `generate`, as a loop that gives its tokens at the end, when it knows them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from tuner.engines.base import EngineError, Sampling, Token
from tuner.engines.slots import check_tokens
from tuner.engines.transformers.opened import Opened


class BeamLoop:
    """Has the methods of `tuner.engines.slots.SlotLoop`; a prefix is never reused, sampling never asked."""

    def __init__(self, opened: Opened, *, beams: int, context_tokens: int) -> None:
        self._opened = opened
        self._beams = beams
        self._context_tokens = context_tokens
        self._waiting: deque[tuple[int, list[int], int, bool]] = deque()
        self._found: deque[Token] = deque()
        self._next_number = 0

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
        reuse_prefix: bool = False,
    ) -> int:
        """Queue a request; EngineError for one that does not fit, and for another temperature than 0."""
        del reuse_prefix
        tokens = list(prompt)
        if not tokens or max_tokens < 1 or len(tokens) + max_tokens > self._context_tokens:
            raise EngineError(
                f"prompt of {len(tokens)} + max_tokens={max_tokens}; allowed: each at least 1, both at most"
                f" {self._context_tokens}, the context"
            )
        if sampling is not None and sampling.temperature:
            raise EngineError(f"temperature={sampling.temperature} with beams={self._beams}; allowed is 0")
        check_tokens(tokens, self._opened.vocabulary_size)
        self._next_number += 1
        self._waiting.append((self._next_number, tokens, max_tokens, ignore_eos))
        return self._next_number

    def step(self) -> list[Token]:
        """The next token of a sequence that was searched; else search the next one first."""
        if not self._found and self._waiting:
            self._search(*self._waiting.popleft())
        return [self._found.popleft()] if self._found else []

    def cancel(self, sequence: int) -> None:
        """Drop a sequence."""
        self._waiting = deque(request for request in self._waiting if request[0] != sequence)
        self._found = deque(token for token in self._found if token.sequence != sequence)

    def reused(self, sequence: int) -> int:
        """Nothing."""
        del sequence
        return 0

    def _search(self, number: int, tokens: list[int], max_tokens: int, ignore_eos: bool) -> None:
        given = torch.tensor([tokens])
        with torch.inference_mode():
            output = self._opened.model.generate(
                given,
                attention_mask=torch.ones_like(given),
                num_beams=self._beams,
                do_sample=False,
                max_new_tokens=max_tokens,
                min_new_tokens=max_tokens if ignore_eos else None,
            )
        found = output[0, len(tokens) :].tolist()
        ended = not ignore_eos and found[-1] in self._opened.ends
        finish = "stop" if ended else "length"
        self._found.extend(Token(number, token) for token in found[:-1])
        self._found.append(Token(number, found[-1], finish))
