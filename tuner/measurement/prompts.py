"""Random prompts of an exact length, another one for every repetition."""

from __future__ import annotations

import random

EDGE_SHARE = 0.02
"""Both ends of a vocabulary hold control tokens; this share of it is left out at each."""


class Prompts:
    """A reproducible source of prompts: equal seeds give equal prompts in equal order."""

    def __init__(self, vocabulary_size: int, seed: int) -> None:
        self._low = int(vocabulary_size * EDGE_SHARE)
        self._high = max(self._low, vocabulary_size - 1 - self._low)
        self._random = random.Random(f"prompts:{seed}")

    def draw(self, streams: int, tokens: int) -> list[list[int]]:
        """One prompt of `tokens` token ids for each stream; no prompt comes twice."""
        return [[self._random.randint(self._low, self._high) for _ in range(tokens)] for _ in range(streams)]
