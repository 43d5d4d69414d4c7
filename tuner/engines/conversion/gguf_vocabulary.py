"""Writes a folder's tokenizer into a GGUF file: byte-level BPE, and Gemma's BPE of SentencePiece."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def add(writer: gguf.GGUFWriter, folder: Path, size: int) -> None:
    """Add `size` tokens, their types, special tokens and the chat template.

    Raises ValueError for a tokenizer of another kind, which llama.cpp would read wrong.
    """
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = document["model"]
    if model.get("type") != "BPE":
        raise ValueError(f"the tokenizer is {model.get('type')}; known is BPE")
    is_byte_level = "ByteLevel" in json.dumps(document.get("decoder"))
    vocabulary: Mapping[str, int] = model["vocab"]
    by_id = {number: piece for piece, number in vocabulary.items()}
    added = {token["id"]: token for token in document.get("added_tokens") or []}
    by_id |= {number: token["content"] for number, token in added.items()}
    tokens = [by_id.get(number, f"[PAD{number}]") for number in range(size)]
    types = [
        int(_type_of(number, token, added, known=number in by_id, is_byte_level=is_byte_level))
        for number, token in enumerate(tokens)
    ]
    writer.add_tokenizer_model("gpt2" if is_byte_level else "llama")
    writer.add_tokenizer_pre(_pre_tokenizer(document) if is_byte_level else "default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if not is_byte_level:
        # The vocabulary is in the order of its merges, which is all that llama.cpp takes from scores.
        writer.add_token_scores([-float(number) for number in range(size)])
        writer.add_add_space_prefix(False)
    special = gguf.SpecialVocab(folder, load_merges=is_byte_level, n_vocab=size)
    special.add_special_token.setdefault("bos", False)
    special.chat_template = _template(folder) or special.chat_template
    special.add_to_gguf(writer, quiet=True)


def _type_of(
    number: int, token: str, added: Mapping[int, Any], *, known: bool, is_byte_level: bool
) -> gguf.TokenType:
    if not known:
        return gguf.TokenType.UNUSED
    if number in added:
        return gguf.TokenType.CONTROL if added[number]["special"] else gguf.TokenType.USER_DEFINED
    if not is_byte_level and _BYTE.fullmatch(token):
        return gguf.TokenType.BYTE
    return gguf.TokenType.NORMAL


def _pre_tokenizer(document: Mapping[str, Any]) -> str:
    """llama.cpp's name for how text is cut before merges apply."""
    steps = document.get("pre_tokenizer") or {}
    listed = steps.get("pretokenizers", [steps])
    kinds = [step.get("type") for step in listed]
    if kinds == ["ByteLevel"] and listed[0].get("use_regex"):
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"] and listed[0].get("individual_digits") and listed[1].get("use_regex"):
        return "smollm"
    raise ValueError(f"the tokenizer cuts text by {kinds}, which is not converted")


def _template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    return path.read_text(encoding="utf-8") if path.is_file() else None
