"""Token bytes as text that is safe to send: whole characters only, and never a part of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextAssembler:
    """Turns the bytes of successive tokens into text pieces; `stopped` is set once a stop string came.

    What may be the beginning of a stop string, or of a character, is held back until it is decided.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        """`stop` holds non-empty strings; the text ends before the first of them that is complete."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop = tuple(stop)
        self._held = ""
        self.stopped = False

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The text that is certain after these bytes; with `final` everything that is left."""
        if self.stopped:
            return ""
        text = self._held + self._decoder.decode(data, final)
        self._held = ""
        if not self._stop:
            return text
        found = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            return text[: min(found)[1]]
        if final:
            return text
        kept = max(_overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def _overlap(text: str, stop: str) -> int:
    """The length of the longest proper beginning of `stop` that `text` ends with."""
    return next(
        (size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0
    )
