"""The simulated engine's tokenizer, chat template and next token, shared by session and scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VOCABULARY_SIZE = 1024
END_OF_SEQUENCE = 2
_FIRST_BYTE = 3
_MASK = (1 << 64) - 1


def tokenize(text: str) -> list[int]:
    """One token a byte, after a leading token 1."""
    return [1, *(byte + _FIRST_BYTE for byte in text.encode())]


def detokenize(tokens: Sequence[int]) -> bytes:
    """The inverse; tokens that are no byte are "~"."""
    return bytes(t - _FIRST_BYTE if 0 <= t - _FIRST_BYTE < 256 else 126 for t in tokens if t >= _FIRST_BYTE)


def chat_prompt(messages: Sequence[Mapping[str, str]]) -> str:
    """The messages in a simple template that ends where the answer begins."""
    turns = "".join(f"<{message['role']}>{message['content']}\n" for message in messages)
    return f"{turns}<assistant>"


def mix(*numbers: int) -> int:
    """A 64-bit hash of some numbers (splitmix64), equal on every machine."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def next_token(last: int, position: int, seed: int) -> int:
    """The token after `last` at `position`; now and then the end of the sequence."""
    drawn = mix(last, position, seed)
    if drawn % 97 == 0:
        return END_OF_SEQUENCE
    return _FIRST_BYTE + ord("a") + drawn % 26
