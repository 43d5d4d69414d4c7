"""The bytes of every token by a `tokenizer.json`: text that libraries decode can't end inside a character."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tuner.engines.base import EngineError

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def read_pieces(path: Path) -> tuple[dict[int, bytes], frozenset[int]]:
    """Token id -> bytes, and the ids of control tokens. Raises EngineError for a file that can't be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = document["model"]["vocab"]
        added = document.get("added_tokens") or []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path.name} is no tokenizer that can be read: {error}") from error
    if isinstance(vocabulary, list):
        vocabulary = {entry[0]: number for number, entry in enumerate(vocabulary)}
    is_byte_level = "ByteLevel" in json.dumps(document.get("decoder"))
    to_bytes = _from_byte_level if is_byte_level else _from_sentence_piece
    pieces = {number: to_bytes(piece) for piece, number in vocabulary.items()}
    pieces.update((token["id"], token["content"].encode()) for token in added)
    return pieces, frozenset(token["id"] for token in added if token["special"])


def byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies (GPT-2's `bytes_to_unicode`)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


_BYTES = {character: byte for byte, character in enumerate(byte_characters())}


def _from_byte_level(piece: str) -> bytes:
    if all(character in _BYTES for character in piece):
        return bytes(_BYTES[character] for character in piece)
    return piece.encode()


def _from_sentence_piece(piece: str) -> bytes:
    byte = _BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()
