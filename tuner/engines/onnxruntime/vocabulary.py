"""Text of an ONNX GenAI folder: genai's own tokenizer and chat template, bytes by the tokenizer's file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.engines.base import EngineError
from tuner.engines.pieces import read_pieces


class Vocabulary:
    """Tokenizer and chat template of one opened model."""

    def __init__(self, folder: Path, model: Any, settings: Mapping[str, Any]) -> None:
        """`settings` is the `model` part of genai_config.json. EngineError for an unreadable tokenizer."""
        import onnxruntime_genai as og

        try:
            self._tokenizer: Any = og.Tokenizer(model)
            # Without it the leading token that a model was trained with is left out.
            self._tokenizer.update_options(add_special_tokens="true")
        except RuntimeError as error:
            raise EngineError(f"the tokenizer of {folder.name} can't be opened: {error}") from error
        self._pieces, self._controls = read_pieces(folder / "tokenizer.json")
        self._first = settings.get("bos_token_id")
        self._has_template = _has_template(folder)

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids; control tokens in the text are understood, a leading token is added where wanted.

        A text that already begins with the leading token (as chat templates write it) gets no second;
        without `leading` none is added.
        """
        tokens = [int(token) for token in self._tokenizer.encode(text)]
        if tokens[:1] != [self._first]:
            return tokens
        piece = self._pieces.get(tokens[0], b"")
        is_written = bool(piece) and text.encode().startswith(piece)
        is_surplus = tokens[1:2] == tokens[:1] if is_written else not leading
        return tokens[1:] if is_surplus else tokens

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some tokens; control tokens give none."""
        return b"".join(self._pieces.get(token, b"") for token in tokens if token not in self._controls)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The messages in the model's own template; None where it has none.

        Raises EngineError with the template's own complaint (roles out of order, say).
        """
        if not self._has_template:
            return None
        document = json.dumps([dict(message) for message in messages], ensure_ascii=False)
        try:
            return str(self._tokenizer.apply_chat_template(document, add_generation_prompt=True))
        except RuntimeError as error:
            raise EngineError(f"the model's chat template refuses: {error}") from error


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").exists():
        return True
    try:
        document = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(document.get("chat_template"))
