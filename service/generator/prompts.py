"""From a request to the token ids that its answer continues."""

from __future__ import annotations

from bisect import bisect_left
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
        """Keep the ids of a conversation so far: its text was continued by what the `made` tokens say.

        A text that was not continued is not kept. Its ids are those of its tokenization, while a longer text
        that begins with it has others: somebody's typing, asked for letter by letter, would become letters.
        """
        if not made:
            return
        answered = self._session.detokenize(made).decode("utf-8", "replace")
        self._conversations.remember(text + answered, [*prompt, *made])

    def _fitted(self, message: Mapping[str, Any]) -> tuple[str, list[int]]:
        if "messages" not in message:
            text = str(message["prompt"])
            return text, self._tokens(text)
        messages = list(message["messages"])
        room = self._context_tokens - min(message.get("max_tokens") or 1, self._context_tokens // 2)
        whole = self._rendered(messages)
        if len(whole[1]) <= room or not message.get("drop_old_turns"):
            return whole
        head = int(messages[0]["role"] == "system")
        # A turn begins with a user's message: what follows it up to the next one goes with it.
        begins = [at for at in range(head + 1, len(messages)) if messages[at]["role"] == "user"]

        def rest(at: int) -> tuple[str, list[int]]:
            return self._rendered([*messages[:head], *messages[at:]])

        # The later it begins the shorter it is: to try one after the other would hold up everybody.
        first = bisect_left(begins, True, key=lambda at: len(rest(at)[1]) <= room)
        return rest(begins[min(first, len(begins) - 1)]) if begins else whole

    def _rendered(self, messages: Sequence[Mapping[str, str]]) -> tuple[str, list[int]]:
        rendered = self._session.chat_prompt(messages)
        if rendered is None:
            raise RefusedError(
                "the model has no chat template: use /v1/completions", "no_chat_template", "messages"
            )
        return rendered, self._tokens(rendered)

    def _tokens(self, text: str) -> list[int]:
        if not text:
            raise RefusedError("the prompt is empty", "empty_prompt", "prompt")
        return self._conversations.tokens(text, self._session.tokenize)
