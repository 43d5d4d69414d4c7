"""From a request to the token ids that its answer continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from service.generator.conversation import Conversations
from tuner.engines.base import Session

CONVERSATIONS = 64
"""Texts whose token ids are remembered."""


class RefusedError(Exception):
    """A request that can't be served as asked; `code` and `param` name why."""

    def __init__(self, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class Prompts:
    """Makes prompts of requests with a session's tokenizer and template, for a context of so many tokens."""

    def __init__(self, session: Session, context_tokens: int) -> None:
        self._session = session
        self._context_tokens = context_tokens
        self._conversations = Conversations(CONVERSATIONS)

    def of(self, message: Mapping[str, Any]) -> tuple[str, list[int], int]:
        """The text that is continued, its token ids, and how many tokens may follow.

        Old turns are dropped only where that was asked. Raises RefusedError for what has no template, is
        empty, or does not fit.
        """
        text, prompt = self._fitted(message)
        room = self._context_tokens - len(prompt)
        if room < 1:
            raise RefusedError(
                f"the prompt has {len(prompt)} tokens: the context holds {self._context_tokens} with the"
                " answer",
                "context_length_exceeded",
                "messages" if "messages" in message else "prompt",
            )
        # A longer answer than fits ends with the finish "length", as one of that length would.
        return text, prompt, min(message.get("max_tokens") or room, room)

    def remember(self, text: str, prompt: Sequence[int], made: Sequence[int]) -> None:
        """Keep the ids of a conversation so far: its text was continued by what the `made` tokens say."""
        answered = self._session.detokenize(made).decode("utf-8", "replace")
        self._conversations.remember(text + answered, [*prompt, *made])

    def _fitted(self, message: Mapping[str, Any]) -> tuple[str, list[int]]:
        if "messages" not in message:
            text = str(message["prompt"])
            return text, self._tokens(text)
        messages = list(message["messages"])
        while True:
            rendered = self._session.chat_prompt(messages)
            if rendered is None:
                raise RefusedError(
                    "the model has no chat template: use /v1/completions", "no_chat_template", "messages"
                )
            tokens = self._tokens(rendered)
            reserve = min(message.get("max_tokens") or 1, self._context_tokens // 2)
            shorter = shortened(messages) if message.get("drop_old_turns") else None
            if len(tokens) + reserve <= self._context_tokens or shorter is None:
                return rendered, tokens
            messages = shorter

    def _tokens(self, text: str) -> list[int]:
        if not text:
            raise RefusedError("the prompt is empty", "empty_prompt", "prompt")
        return self._conversations.tokens(text, self._session.tokenize)


def shortened(messages: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]] | None:
    """The messages without their oldest turn: the system prompt and the last message stay; None where
    no whole turn is left to drop."""
    head = [message for message in messages[:1] if message["role"] == "system"]
    turns = list(messages[len(head) :])
    # A turn begins with a user's message: what follows it up to the next one goes with it.
    next_turn = next((at for at in range(1, len(turns)) if turns[at]["role"] == "user"), None)
    return None if next_turn is None else [*head, *turns[next_turn:]]
