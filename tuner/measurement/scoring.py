"""Teacher-forced comparison of a candidate's next-token distributions with a stored reference.

Runs in the worker process. A reference holds, for each position, its 1024 most likely tokens and the mass
of all others as one more outcome, so that 768 positions take 6 MiB and not hundreds. The KL divergence
over these 1025 outcomes is a lower bound of the one over the vocabulary (merging outcomes never raises it);
docs/statistics.md says how close.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.engines.base import EngineError, Scorer

TOP = 1024
CHUNK = 64
FORMAT = 1
LONGEST_SEQUENCE = 512
"""A scorer's context holds at least this many tokens."""

Payload = Mapping[str, Any]
Floats = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True)
class _Sequence:
    """Tokens to feed; positions from `first` on are scored, each against the token that follows it."""

    tokens: list[int]
    first: int

    @property
    def scored(self) -> int:
        return len(self.tokens) - 1 - self.first


def handle(op: str, scorer: Scorer, payload: Payload) -> dict[str, Any]:
    """Answer one operation; every value that is sent and returned fits into JSON.

    score_reference {texts, chat_prompts, positions, reply_tokens, path}: scores about `positions` tokens,
    those of the reference's own greedy replies to `chat_prompts` (where the model has a chat template) and
    the rest from `texts` in equal parts, and writes the reference to `path`, whole or not at all.
    Returns {positions, reply_positions, vocabulary}.

    score_compare {reference}: feeds the same tokens to this scorer. Returns one list each with a value per
    position: kl (nats), top1 (bool: the most likely tokens are equal), margin (the reference's two best
    probabilities apart), logprob_difference (candidate - reference, of the token that follows).

    Raises EngineError for another tokenizer or vocabulary than the reference's, for logits that are not
    numbers, and for an operation that it does not know.
    """
    operations: dict[str, Callable[[Scorer, Payload], dict[str, Any]]] = {
        "score_reference": _reference,
        "score_compare": _compare,
    }
    if op not in operations:
        raise EngineError(f"unknown operation '{op}': known are {', '.join(operations)}")
    return operations[op](scorer, payload)


def _reference(scorer: Scorer, payload: Payload) -> dict[str, Any]:
    texts = [str(text) for text in payload["texts"]]
    text_tokens = [scorer.tokenize(text) for text in texts]
    replies = list(_replies(scorer, payload["chat_prompts"], int(payload["reply_tokens"])))
    reply_positions = sum(reply.scored for reply in replies)
    share = max(int(payload["positions"]) - reply_positions, 0) // max(len(texts), 1)
    # One more than is scored: the last token is only the answer to the position before it.
    length = min(share + 1, LONGEST_SEQUENCE)
    pieces = [_Sequence(tokens[:length], 0) for tokens in text_tokens]
    sequences = [s for s in (*pieces, *replies) if s.scored > 0]
    if not sequences:
        raise EngineError("the texts have no two tokens to score")
    columns: dict[str, list[npt.NDArray[Any]]] = {
        name: [] for name in ("ids", "logprobs", "tail", "following", "margin")
    }
    vocabulary = 0
    for logits, following in _scored_chunks(scorer, sequences):
        vocabulary = logits.shape[1]
        for name, values in _compact(logits, following).items():
            columns[name].append(values)
    _save(
        Path(payload["path"]),
        meta=np.frombuffer(
            json.dumps({"format": FORMAT, "vocabulary": vocabulary, "texts": texts}).encode(), np.uint8
        ),
        text_tokens=np.array([t for tokens in text_tokens for t in tokens], np.int32),
        text_lengths=np.array([len(tokens) for tokens in text_tokens], np.int32),
        tokens=np.array([t for s in sequences for t in s.tokens], np.int32),
        lengths=np.array([len(s.tokens) for s in sequences], np.int32),
        first=np.array([s.first for s in sequences], np.int32),
        **{name: np.concatenate(parts) for name, parts in columns.items()},
    )
    return {
        "positions": sum(s.scored for s in sequences),
        "reply_positions": reply_positions,
        "vocabulary": vocabulary,
    }


def _compare(scorer: Scorer, payload: Payload) -> dict[str, Any]:
    with np.load(payload["reference"], allow_pickle=False) as stored:
        reference = {name: stored[name] for name in stored.files}
    meta = json.loads(reference["meta"].tobytes())
    if meta["format"] != FORMAT:
        raise EngineError(f"reference of format {meta['format']}: this version reads {FORMAT}; make it anew")
    expected = _split(reference["text_tokens"], reference["text_lengths"])
    for number, (text, tokens) in enumerate(zip(meta["texts"], expected, strict=True)):
        _same_tokens(number, scorer.tokenize(text), tokens)
    sequences = [
        _Sequence(tokens, int(first))
        for tokens, first in zip(
            _split(reference["tokens"], reference["lengths"]), reference["first"], strict=True
        )
    ]
    found: dict[str, list[Any]] = {"kl": [], "top1": [], "margin": [], "logprob_difference": []}
    done = 0
    for logits, following in _scored_chunks(scorer, sequences):
        if logits.shape[1] < meta["vocabulary"]:
            raise EngineError(f"{logits.shape[1]} logits a token: the reference has {meta['vocabulary']}")
        # Some engines pad the vocabulary; no token has these numbers.
        logits = logits[:, : meta["vocabulary"]]
        rows = slice(done, done + len(following))
        done = rows.stop
        logprobs, tail, next_logprob = _gather(logits, reference["ids"][rows], following)
        found["kl"] += _kl(reference["logprobs"][rows], reference["tail"][rows], logprobs, tail).tolist()
        found["top1"] += (logits.argmax(axis=1) == reference["ids"][rows, 0]).tolist()
        found["margin"] += reference["margin"][rows].tolist()
        found["logprob_difference"] += (next_logprob - reference["following"][rows]).tolist()
    return found


def _replies(scorer: Scorer, prompts: Iterable[str], reply_tokens: int) -> Iterator[_Sequence]:
    """The model's own greedy answers after each prompt, in its chat template; none without a template."""
    for prompt in prompts:
        text = scorer.chat_prompt([{"role": "user", "content": prompt}])
        if text is None or reply_tokens < 1:
            return
        tokens = scorer.tokenize(text)[: LONGEST_SEQUENCE - reply_tokens]
        first = len(tokens) - 1
        scorer.start()
        for chunk in _chunks(tokens):
            logits = scorer.feed(chunk)
        for _ in range(reply_tokens):
            tokens.append(int(logits[-1].argmax()))
            logits = scorer.feed(tokens[-1:])
        yield _Sequence(tokens, first)


def _scored_chunks(scorer: Scorer, sequences: Sequence[_Sequence]) -> Iterator[tuple[Floats, Tokens]]:
    """Logits of the scored positions, 64 or fewer at a time, with the token that follows each."""
    for sequence in sequences:
        scorer.start()
        begin = 0
        for chunk in _chunks(sequence.tokens[:-1]):
            logits = scorer.feed(chunk)
            skipped = max(sequence.first - begin, 0)
            following = sequence.tokens[begin + skipped + 1 : begin + len(chunk) + 1]
            begin += len(chunk)
            if following:
                scored = logits[skipped:]
                if not np.isfinite(scored).all():
                    raise EngineError(f"logits that are not numbers, near token {begin} of a text")
                yield scored, np.array(following, np.int32)


def _chunks(tokens: Sequence[int]) -> Iterator[Sequence[int]]:
    for begin in range(0, len(tokens), CHUNK):
        yield tokens[begin : begin + CHUNK]


def _compact(logits: Floats, following: Tokens) -> dict[str, npt.NDArray[Any]]:
    """The reference's columns for some positions: the most likely tokens first."""
    kept = min(TOP, logits.shape[1])
    # Row by row: the indices of all rows at once would take twice the memory of the logits.
    largest = np.stack([np.argpartition(row, -kept)[-kept:] for row in logits])
    order = np.argsort(-np.take_along_axis(logits, largest, axis=1), axis=1, kind="stable")
    ids = np.take_along_axis(largest, order, axis=1).astype(np.int32)
    logprobs, tail, next_logprob = _gather(logits, ids, following)
    best = np.exp(logprobs[:, :2])
    margin = best[:, 0] - best[:, 1] if kept > 1 else best[:, 0]
    return {"ids": ids, "logprobs": logprobs, "tail": tail, "following": next_logprob, "margin": margin}


def _gather(logits: Floats, ids: Tokens, following: Tokens) -> tuple[Floats, Floats, Floats]:
    """Log probabilities of `ids`, of all other tokens together, and of the following token.

    The others' mass is summed on its own: as 1 - the rest it would be lost in rounding.
    """
    highest = logits.max(axis=1, keepdims=True)
    masses = np.subtract(logits, highest)
    top = np.take_along_axis(masses, ids, axis=1).astype(np.float64)
    next_one = np.take_along_axis(masses, following[:, None], axis=1)[:, 0].astype(np.float64)
    np.exp(masses, out=masses)
    np.put_along_axis(masses, ids, 0.0, axis=1)
    rest = masses.sum(axis=1, dtype=np.float64)
    log_total = np.log(np.exp(top).sum(axis=1) + rest)
    with np.errstate(divide="ignore"):
        tail = np.log(rest) - log_total
    return (
        (top - log_total[:, None]).astype(np.float32),
        tail.astype(np.float32),
        (next_one - log_total).astype(np.float32),
    )


def _kl(p: Floats, p_tail: Floats, q: Floats, q_tail: Floats) -> npt.NDArray[np.float64]:
    """sum p log(p/q) per position, over the kept tokens and the rest as one outcome, in nats."""
    wide = p.astype(np.float64)
    kept = (np.exp(wide) * (wide - q)).sum(axis=1)
    # exp(-80) adds nothing, and keeps an empty rest from making NaN.
    floor = np.float64(-80.0)
    rest, other = np.maximum(p_tail, floor), np.maximum(q_tail, floor)
    found: npt.NDArray[np.float64] = np.maximum(kept + np.exp(rest) * (rest - other), 0.0)
    return found


def _same_tokens(number: int, seen: Sequence[int], expected: Sequence[int]) -> None:
    if list(seen) == list(expected):
        return
    differing = (i for i, (a, b) in enumerate(zip(seen, expected, strict=False)) if a != b)
    place = next(differing, min(len(seen), len(expected)))
    raise EngineError(
        f"the tokenizer is not the reference's: text {number} differs from token {place} on "
        f"({len(seen)} tokens, the reference has {len(expected)})"
    )


def _split(flat: Tokens, lengths: Tokens) -> list[list[int]]:
    return [part.tolist() for part in np.split(flat, np.cumsum(lengths)[:-1])]


def _save(path: Path, **columns: Any) -> None:
    """Write beside `path` and rename, so that a reader finds the whole file or none."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **columns)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
