"""How many sequences are worth one batch, by the times of the steps that were taken."""

from __future__ import annotations

from collections import deque
from statistics import median

FEWEST = 16
"""Steps of one size that say how long such a step takes."""
KEPT = 64
KNOWN_FOR_NS = 60_000_000_000
"""Older steps say nothing any more: the batch is tried again at the size that did not pay."""
LOSS = 0.8
"""A batch of more sequences pays until all of them together get less than this share of the tokens per second
of a smaller one: below it, everybody's answer would come later than by waiting for a turn."""


class Pace:
    """Remembers the times of steps in which every sequence got one token."""

    def __init__(self, most: int) -> None:
        """`most` sequences fit into a batch."""
        self._most = most
        self._steps: dict[int, deque[tuple[int, int]]] = {}

    def saw(self, sequences: int, step_ns: int, now_ns: int) -> None:
        """A step of so many sequences took so long and ended now."""
        self._steps.setdefault(sequences, deque(maxlen=KEPT)).append((now_ns, step_ns))

    def places(self, now_ns: int) -> int:
        """The largest batch that pays; one that was not measured lately does."""
        rates = {}
        for sequences, steps in self._steps.items():
            while steps and now_ns - steps[0][0] > KNOWN_FOR_NS:
                steps.popleft()
            if len(steps) >= FEWEST:
                rates[sequences] = sequences / median(step_ns for _at, step_ns in steps)
        largest = max(rates, default=0)
        if not largest:
            return self._most
        best = max(rates, key=lambda sequences: rates[sequences])
        return best if rates[largest] < LOSS * rates[best] else self._most
