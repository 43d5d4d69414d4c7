"""Writes a folder's tokenizer into a GGUF file: byte-level BPE, and BPE of SentencePiece."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = {_WORDS.replace("DIGITS", "{1,3}"): "llama-bpe", _WORDS.replace("DIGITS", ""): "qwen2"}
"""How Llama 3 and Qwen cut text, and llama.cpp's names for it."""


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
        writer.add_add_space_prefix(_begins_with_space(document))
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
    """llama.cpp's name for how text is cut before merges apply, which also says whether a word that is a
    token needs no merges."""
    steps = document.get("pre_tokenizer") or {}
    listed = steps.get("pretokenizers", [steps])
    kinds = [step.get("type") for step in listed]
    first, last = listed[0], listed[-1]
    by_own_pattern = bool(last.get("use_regex", True))
    name = None
    if kinds == ["ByteLevel"] and by_own_pattern:
        name = "gpt-2"
    elif kinds == ["Digits", "ByteLevel"] and first.get("individual_digits") and by_own_pattern:
        name = "smollm"
    elif kinds == ["Split", "ByteLevel"] and not by_own_pattern and first.get("behavior") == "Isolated":
        name = _PATTERNS.get(first["pattern"].get("Regex", "")) if not first.get("invert") else None
    whole_words = bool(document["model"].get("ignore_merges"))
    if name is None or last.get("add_prefix_space") or whole_words != (name == "llama-bpe"):
        known = ", ".join(("gpt-2", "smollm", *_PATTERNS.values()))
        raise ValueError(
            f"the tokenizer cuts text by {' and '.join(map(str, kinds))} in a way that is not converted;"
            f" known are those that llama.cpp calls {known}"
        )
    return name


def _begins_with_space(document: Mapping[str, Any]) -> bool:
    """Whether a space is put before a text, as Llama 2 does and Gemma doesn't."""
    normalizer = document.get("normalizer") or {}
    kinds = [step.get("type") for step in normalizer.get("normalizers", [normalizer])]
    scheme = (document.get("pre_tokenizer") or {}).get("prepend_scheme", "never")
    return "Prepend" in kinds or scheme != "never"


def _template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    return path.read_text(encoding="utf-8") if path.is_file() else None
