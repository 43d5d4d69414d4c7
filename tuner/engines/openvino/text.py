"""Text of a model folder: tokens, bytes, chat template, the tokens that end an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import openvino_genai

from tuner.engines.base import EngineError
from tuner.engines.openvino.folder import GENERATION
from tuner.engines.openvino.graph import reason

_SPACE = "\u2581".encode()
"""What SentencePiece writes for a space."""


class Text:
    """The tokenizer of a folder, as graphs that OpenVINO runs."""

    def __init__(self, folder: Path) -> None:
        """Raises EngineError where a graph is refused."""
        try:
            self._tokenizer = openvino_genai.Tokenizer(folder)
            config = folder / GENERATION
            generation = openvino_genai.GenerationConfig(config) if config.is_file() else None
            vocabulary: dict[bytes, int] = self._tokenizer.get_vocab()
        except RuntimeError as error:
            raise EngineError(reason(error)) from error
        self._bytes = {token: piece for piece, token in vocabulary.items()}
        self._is_sentencepiece = b"<0x0A>" in vocabulary
        self.piece = cache(self._piece)
        ends = {self._tokenizer.get_eos_token_id(), *(generation.stop_token_ids if generation else ())}
        self.ends = frozenset(token for token in ends if token >= 0)

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids; control tokens in the text are understood, a leading token is added where wanted.

        A text that already begins with the leading token (as chat templates write it) gets no second.
        """
        first = self._tokenizer.get_bos_token()
        wanted = leading and not (first and text.startswith(first))
        found = self._tokenizer.encode(text, add_special_tokens=wanted)
        return [int(token) for token in found.input_ids.data[0]]

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some tokens; control tokens give none."""
        return b"".join(map(self.piece, tokens))

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The messages in the folder's own template; EngineError with its complaint, None without one."""
        if not self._tokenizer.chat_template:
            return None
        try:
            rendered = self._tokenizer.apply_chat_template([dict(one) for one in messages], True)
        except RuntimeError as error:
            raise EngineError(f"the model's chat template refuses: {reason(error)}") from error
        return str(rendered)

    def _piece(self, token: int) -> bytes:
        # A part of a character is no text either way; a control token only where it is left out.
        with_controls, without = (
            self._tokenizer.decode([token], skip_special_tokens=skip) for skip in (False, True)
        )
        if with_controls and not without:
            return b""
        piece = self._bytes.get(token, b"")
        if not self._is_sentencepiece:
            return piece
        if len(piece) == 6 and piece.startswith(b"<0x") and piece.endswith(b">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(_SPACE, b" ")
