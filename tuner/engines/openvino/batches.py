"""The generation loop of the paged backend: one batch a step, of all sequences that run."""

from __future__ import annotations

from itertools import accumulate

from tuner.engines.base import EngineError, Token
from tuner.engines.openvino.caches import SharedCache
from tuner.engines.slots import SlotLoop


class BatchLoop(SlotLoop):
    """Sequences that run side by side; their prompts enter by `prefill_chunk` tokens a step while others
    generate, so that a long prompt doesn't hold them up."""

    def __init__(
        self,
        cache: SharedCache,
        *,
        context_tokens: int,
        vocabulary_size: int,
        ends: frozenset[int],
        prefill_chunk: int,
    ) -> None:
        super().__init__(
            cache.places,
            context_tokens=context_tokens,
            vocabulary_size=vocabulary_size,
            ends=ends,
            prefill_chunk=prefill_chunk,
        )
        self._cache = cache

    def step(self) -> list[Token]:
        """A token of each sequence that generates, and prompt tokens of the others."""
        self._settle()
        busy = [
            (len(slot.tokens) - slot.past, slot, place, slot.request)
            for slot, place in zip(self._slots, self._cache.places, strict=True)
            if slot.request is not None
        ]
        busy.sort(key=lambda one: one[0] > 1)
        generating = sum(missing == 1 for missing, *_rest in busy)
        room = generating + self.prefill_chunk if generating else sum(missing for missing, *_rest in busy)
        fed = []
        for missing, slot, place, request in busy:
            count = min(missing, room)
            room -= count
            if count:
                tokens = slot.tokens[slot.past : slot.past + count]
                fed.append((slot, request, place.part(tokens)))
        if not fed:
            return []
        ends = [end - 1 for end in accumulate(len(part.tokens) for _slot, _request, part in fed)]
        try:
            rows = self._cache.feed([part for _slot, _request, part in fed], ends)
        except EngineError:
            for slot, _request, _part in fed:
                slot.past = slot.cache.keep(0)
            raise
        return [
            token
            for (slot, request, part), row in zip(fed, rows, strict=True)
            for token in self._advance(slot, request, len(part.tokens), row)
        ]
