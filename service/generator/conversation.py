"""Which token ids a text was made of, so that a conversation's next turn finds its prefix in the cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol


class Tokenize(Protocol):
    """`Session.tokenize`."""

    def __call__(self, text: str, *, leading: bool = True) -> Sequence[int]:
        """Token ids."""


class Conversations:
    """Remembers the ids of the last texts, prompts with their answers.

    A model writes its answers in other tokens than its tokenizer would: tokenizing a conversation anew
    breaks the prefix that the KV cache holds. So the part of a text that is known keeps its ids.
    """

    def __init__(self, size: int) -> None:
        """Remember at most `size` texts, the least recently used one goes first."""
        self._size = size
        self._known: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def remember(self, text: str, tokens: Sequence[int]) -> None:
        """Keep the ids that a text came from."""
        self._known[text] = tuple(tokens)
        self._known.move_to_end(text)
        while len(self._known) > self._size:
            self._known.popitem(last=False)

    def tokens(self, text: str, tokenize: Tokenize) -> list[int]:
        """The ids of a text: those of the longest known beginning, then what `tokenize` makes of the rest."""
        beginning = max((known for known in self._known if text.startswith(known)), key=len, default=None)
        if beginning is None:
            return list(tokenize(text))
        self._known.move_to_end(beginning)
        rest = text[len(beginning) :]
        return [*self._known[beginning], *(tokenize(rest, leading=False) if rest else ())]
