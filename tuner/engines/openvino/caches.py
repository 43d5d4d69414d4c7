"""KV caches of a compiled model, of sequences computed one by one or many in one batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import openvino as ov

from tuner.engines.base import EngineError
from tuner.engines.openvino.graph import LOGITS_AT, Graph, reason

Logits = npt.NDArray[np.float32]


class OwnCache:
    """The KV cache of one sequence, inside a request of its own."""

    def __init__(self, graph: Graph) -> None:
        self._request = graph.request()
        self._past = 0

    def feed(self, tokens: Sequence[int]) -> Logits:
        """The logits after the last token, of shape (vocabulary,); valid until the next call."""
        last: Logits = self.feed_all(tokens, (len(tokens) - 1,))[0]
        return last

    def feed_all(self, tokens: Sequence[int], at: Iterable[int]) -> Logits:
        """Logits after the tokens at these places, (places, vocabulary); valid until the next call."""
        past, self._past = self._past, self._past + len(tokens)
        inputs: dict[str, npt.NDArray[Any]] = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, self._past), np.int64),
            "position_ids": np.arange(past, self._past, dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
            LOGITS_AT: np.fromiter(at, np.int64),
        }
        rows: Logits = _infer(self._request, inputs)[0]
        return rows

    def keep(self, tokens: int) -> int:
        """Forget all but the first `tokens` of the sequence."""
        if tokens == 0:
            self._request.reset_state()
        elif tokens < self._past:
            for state in self._request.query_state():
                # Its first axes are the batch and the heads, whatever the types inside.
                state.state = ov.Tensor(np.ascontiguousarray(state.state.data[:, :, :tokens]))
        self._past = tokens
        return tokens


class Part(NamedTuple):
    """Some tokens of a sequence, after `past` of it that its place in the cache holds already."""

    place: int
    past: int
    tokens: Sequence[int]


class SharedCache:
    """The KV caches of all sequences in blocks, as the paged attention operator takes them."""

    def __init__(self, graph: Graph, places: int, context_tokens: int) -> None:
        """Room for `context_tokens` in each of `places`."""
        self._request = graph.request()
        caches = graph.caches()
        # The value cache's third axis is the tokens of a block; a quantized key cache has more rows there.
        self._block_tokens = next(
            one.get_partial_shape()[2].get_length()
            for one in caches
            if one.get_any_name().startswith("value_cache.")
        )
        self._blocks = -(-context_tokens // self._block_tokens)
        for one in caches:
            sizes = [size.get_length() for size in list(one.get_partial_shape())[1:]]
            shape = ov.Shape([places * self._blocks, *sizes])
            self._request.set_tensor(one.get_any_name(), ov.Tensor(one.get_element_type(), shape))
        self.places = [Place(self, index) for index in range(places)]

    def feed(self, parts: Sequence[Part], at: Iterable[int]) -> Logits:
        """Logits after the tokens at these places of all parts in a row; valid until the next call.

        Of shape (places, vocabulary).
        """
        totals = [part.past + len(part.tokens) for part in parts]
        blocks = [
            np.arange(-(-total // self._block_tokens), dtype=np.int32) + part.place * self._blocks
            for part, total in zip(parts, totals, strict=True)
        ]
        positions = [np.arange(part.past, total) for part, total in zip(parts, totals, strict=True)]
        inputs = {
            "input_ids": np.concatenate([np.asarray(part.tokens, np.int64) for part in parts]),
            "position_ids": np.concatenate(positions).astype(np.int64),
            "past_lens": np.array([part.past for part in parts], np.int32),
            "subsequence_begins": _begins(len(part.tokens) for part in parts),
            "block_indices": np.concatenate(blocks),
            "block_indices_begins": _begins(map(len, blocks)),
            "max_context_len": np.array(max(totals), np.int32),
            LOGITS_AT: np.fromiter(at, np.int64),
        }
        rows: Logits = _infer(self._request, inputs)[:, 0]
        return rows


class Place:
    """One sequence's place in a shared cache."""

    def __init__(self, cache: SharedCache, index: int) -> None:
        self._cache = cache
        self._index = index
        self._past = 0

    def part(self, tokens: Sequence[int]) -> Part:
        """The next tokens of the sequence; they count as computed."""
        past, self._past = self._past, self._past + len(tokens)
        return Part(self._index, past, tokens)

    def feed(self, tokens: Sequence[int]) -> Logits:
        """As that of `OwnCache`."""
        last: Logits = self.feed_all(tokens, (len(tokens) - 1,))[0]
        return last

    def feed_all(self, tokens: Sequence[int], at: Iterable[int]) -> Logits:
        """As that of `OwnCache`."""
        return self._cache.feed([self.part(tokens)], at)

    def keep(self, tokens: int) -> int:
        """Forget all but the first `tokens`: what comes after them is written over."""
        self._past = tokens
        return tokens


def _begins(lengths: Iterable[int]) -> npt.NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(list(lengths))]).astype(np.int32)


def _infer(request: ov.InferRequest, inputs: dict[str, npt.NDArray[Any]]) -> Logits:
    """The first output, in the request's own memory."""
    try:
        for name, values in inputs.items():
            request.set_tensor(name, ov.Tensor(values))
        request.infer()
    except RuntimeError as error:
        raise EngineError(reason(error)) from error
    rows: Logits = request.get_output_tensor(0).data
    return rows
