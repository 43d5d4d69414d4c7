"""A bounded memory of answers to requests that have only one: those at temperature 0."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from service.generator.launching import Serving
from service.generator.requests import End, Generation, Stream

LONGEST_TEXT = 1 << 16
"""Characters; a longer answer is not kept."""


@dataclass(frozen=True)
class _Kept:
    text: str
    end: End


class Remembered:
    """Answers by what gave them and request, the least recently used goes first; of size 0 it keeps none."""

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def answer(self, request: Generation, serving: Serving) -> Stream | None:
        """The stream of an answer that is known of `serving`, at its end already; all of its prompt counts as
        cached."""
        if not self._holds(request):
            return None
        key = _key(request, serving)
        known = self._kept.get(key)
        if known is None:
            return None
        self._kept.move_to_end(key)
        stream = Stream(-1, request, lambda: None, time.monotonic(), serving)
        if known.text:
            stream.put(known.text)
        stream.put(replace(known.end, cached_tokens=known.end.prompt_tokens, ttft_ms=0.0, tpot_ms=None))
        return stream

    def listen(self, stream: Stream) -> None:
        """Remember the answer that a stream will come to, where there can be no other one."""
        if not self._holds(stream.request):
            return
        pieces: list[str] = []

        def hear(item: str | End) -> None:
            if isinstance(item, str):
                pieces.append(item)
            else:
                self._keep(stream, "".join(pieces), item)

        stream.listener = hear

    def _keep(self, stream: Stream, text: str, end: End) -> None:
        # Who answers is known only now: a request that waited may have gone over to another one.
        if stream.serving is not None and len(text) <= LONGEST_TEXT:
            self._kept[_key(stream.request, stream.serving)] = _Kept(text, end)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)

    def _holds(self, request: Generation) -> bool:
        return self._size > 0 and request.sampling["temperature"] == 0


def _key(request: Generation, serving: Serving) -> bytes:
    """The seed says nothing where nothing is drawn."""
    asked = {**request.message(0), "sampling": {**request.sampling, "seed": 0}}
    return hashlib.sha256(json.dumps([serving.identity, asked], sort_keys=True).encode()).digest()
