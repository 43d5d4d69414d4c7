"""Text of a Hugging Face folder: tokens, bytes, chat template, the tokens that end an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.engines.base import EngineError
from tuner.engines.pieces import read_pieces


class Text:
    """The tokenizer of an opened folder."""

    def __init__(self, folder: Path) -> None:
        """Raises EngineError for a tokenizer that can't be read."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EngineError(f"the tokenizer of {folder.name} can't be opened: {error}") from error
        self._tokenizer: Any = tokenizer
        self._pieces, self._controls = read_pieces(folder / "tokenizer.json")

    @property
    def end(self) -> int | None:
        """The token that ends an answer, by the tokenizer."""
        found: int | None = self._tokenizer.eos_token_id
        return found

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids; control tokens in the text are understood, a leading token is added where wanted.

        A text that already begins with the leading token (as chat templates write it) gets no second.
        """
        first = self._tokenizer.bos_token
        wanted = leading and not (first and text.startswith(first))
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=wanted)]

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some tokens; control tokens give none."""
        return b"".join(self._pieces.get(token, b"") for token in tokens if token not in self._controls)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The messages in the folder's own template; EngineError with its complaint, None without one."""
        from jinja2 import TemplateError

        if not self._tokenizer.chat_template:
            return None
        try:
            rendered = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise EngineError(f"the model's chat template refuses: {error}") from error
        return str(rendered)
