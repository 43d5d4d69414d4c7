"""Describes a model by the checked headers of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from profiles.vocabulary import ModelInfo
from tuner.errors import ModelFileError
from tuner.models.gguf import Header, read_header

ENCODERS = frozenset(
    {"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert", "neo-bert",
     "eurobert", "gemma-embedding", "t5encoder", "clip", "wavtokenizer-dec"}
)  # fmt: skip
"""Architectures that don't generate text."""


def inspect(parts: Sequence[Path], *, name: str, digest: str = "", random_weights: bool = False) -> ModelInfo:
    """What the headers of a model's parts say, as one `ModelInfo`.

    Raises ModelFileError for a broken file, parts that don't belong together, and a model that is not
    made to generate text.
    """
    headers = [read_header(path) for path in parts]
    _check_parts(headers)
    first = headers[0]
    _check_generates(first)
    _check_numbers(first)
    mix: Counter[str] = Counter()
    for header in headers:
        mix.update(header.tensor_mix)
    elements = sum(tensor.elements for header in headers for tensor in header.tensors)
    if not elements:
        raise ModelFileError(f"{first.path} holds no weights")
    layers = _required(first, "block_count")
    hidden = _required(first, "embedding_length")
    heads = _required(first, "attention.head_count")
    # Engines take these for granted, and abort or reserve memory by them.
    for key, value, most, what in (
        ("block_count", layers, sum(len(header.tensors) for header in headers), "tensors"),
        ("attention.head_count", heads, hidden, "elements of its embedding"),
    ):
        if value > most:
            raise ModelFileError(
                f"{first.path}: {first.architecture}.{key} is {value}, above its {most} {what}"
            )
    shared = hidden // heads
    tokenizer = first.text("tokenizer.ggml.model")
    return ModelInfo(
        name=name,
        digest=digest,
        format="gguf",
        architecture=first.architecture,
        parameter_count=elements,
        layer_count=layers,
        hidden_size=hidden,
        head_count=heads,
        kv_head_count=first.of_architecture("attention.head_count_kv") or heads,
        key_length=first.of_architecture("attention.key_length") or shared,
        value_length=first.of_architecture("attention.value_length") or shared,
        vocabulary_size=_vocabulary_size(first),
        context_length=first.of_architecture("context_length") or 0,
        file_bytes=sum(header.file_bytes for header in headers),
        tensor_mix=tuple(sorted(mix.items())),
        bits_per_weight=8 * sum(mix.values()) / elements,
        sliding_window=first.of_architecture("attention.sliding_window") or None,
        has_chat_template="tokenizer.chat_template" in first.metadata,
        has_tokenizer=tokenizer not in (None, "none", "no_vocab"),
        weights_are_random=random_weights,
    )


def type_map(parts: Sequence[Path]) -> list[tuple[str, str]]:
    """(tensor name, type) of every tensor, sorted: what a variant really is."""
    return sorted((tensor.name, tensor.type) for path in parts for tensor in read_header(path).tensors)


def _check_parts(headers: Sequence[Header]) -> None:
    """Each part must say that it is one of just as many."""
    for number, header in enumerate(headers):
        count = header.integer("split.count") or 1
        index = header.integer("split.no") or 0
        if (count, index) != (len(headers), number):
            raise ModelFileError(
                f"{header.path} says it is part {index + 1} of {count}, but stands as part {number + 1} of"
                f" {len(headers)}; keep the parts as separate files under their original names"
            )


def _check_generates(header: Header) -> None:
    architecture = header.architecture
    if not architecture:
        raise ModelFileError(f"{header.path} names no architecture (general.architecture)")
    reason = None
    if architecture in ENCODERS:
        reason = f"its architecture is '{architecture}'"
    elif header.metadata.get(f"{architecture}.attention.causal") is False:
        reason = f"{architecture}.attention.causal is false"
    elif header.of_architecture("pooling_type"):
        reason = f"{architecture}.pooling_type is {header.of_architecture('pooling_type')}"
    elif header.text("general.type") not in (None, "model"):
        reason = f"general.type is '{header.text('general.type')}'"
    if reason is not None:
        raise ModelFileError(f"{header.path} is not a text-generation model: {reason}")


def _check_numbers(header: Header) -> None:
    """Engines assert on these in the first computation, which ends the process."""
    for key, value in header.metadata.items():
        if isinstance(value, float) and not (isfinite(value) and (value >= 0 or "epsilon" not in key)):
            allowed = "0 or more" if "epsilon" in key else "a finite number"
            raise ModelFileError(f"{header.path}: {key} is {value}; allowed: {allowed}")


def _required(header: Header, key: str) -> int:
    value = header.of_architecture(key)
    if value is None or value < 1:
        raise ModelFileError(
            f"{header.path} lacks {header.architecture}.{key}, or it is not above 0: {value}"
        )
    return value


def _vocabulary_size(header: Header) -> int:
    listed = header.array_lengths.get("tokenizer.ggml.tokens")
    embedding = next((t.shape for t in header.tensors if t.name == "token_embd.weight"), ())
    return listed or header.of_architecture("vocab_size") or (embedding[1] if len(embedding) > 1 else 0)
