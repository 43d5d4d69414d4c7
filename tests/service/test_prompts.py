"""A conversation that is too long loses its oldest turns, and no more of them than it must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.generator.prompts import Prompts, RefusedError
from tuner.engines.base import Session

CONTEXT = 64
ROLES = st.sampled_from(("user", "assistant"))
TALK = st.lists(st.tuples(ROLES, st.text("ab", min_size=1, max_size=9)), min_size=1, max_size=40)


class Words:
    """A session whose template joins what was said; each character is a token."""

    def __init__(self) -> None:
        self.rendered = 0

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        self.rendered += 1
        return "".join(message["content"] for message in messages)

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        del leading
        return list(text.encode())


def said(*messages: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in messages]


def fitted(messages: list[dict[str, str]], session: Words, **options: object) -> str:
    prompts = Prompts(cast("Session", session), CONTEXT)
    text, _tokens, _room = prompts.of({"messages": messages, "max_tokens": 4, **options})
    return text


def one_after_the_other(messages: list[dict[str, str]], head: int) -> str | None:
    """What fits after as many turns as needed were dropped, each in its turn."""
    while True:
        text = "".join(message["content"] for message in messages)
        if len(text) + 4 <= CONTEXT:
            return text
        begins = [at for at in range(head + 1, len(messages)) if messages[at]["role"] == "user"]
        if not begins:
            return text if len(text) < CONTEXT else None
        messages = [*messages[:head], *messages[begins[0] :]]


@given(TALK, st.booleans())
def test_as_few_turns_are_dropped_as_can_be(talk: list[tuple[str, str]], has_system: bool):
    messages = said(*([("system", "SSS")] if has_system else []), *talk)
    wanted = one_after_the_other(messages, int(has_system))
    if wanted is None:
        with pytest.raises(RefusedError, match=f"the context holds {CONTEXT}"):
            fitted(messages, Words(), drop_old_turns=True)
    else:
        assert fitted(messages, Words(), drop_old_turns=True) == wanted


def test_a_very_long_conversation_is_not_rendered_turn_by_turn():
    session = Words()
    messages = said(("system", "S"), *[("user", "question "), ("assistant", "answer ")] * 2000, ("user", "z"))
    assert fitted(messages, session, drop_old_turns=True).endswith("question answer z")
    assert session.rendered <= 15


class Pairs(Words):
    """Two characters are a token."""

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        del leading
        return [hash(text[at : at + 2]) for at in range(0, len(text), 2)]

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        return b"!" * len(tokens)


def test_what_was_generated_keeps_its_ids_and_what_was_only_asked_is_tokenized_anew():
    session = Pairs()
    prompts = Prompts(cast("Session", session), CONTEXT)
    text, asked, _room = prompts.of({"prompt": "typ"})
    prompts.remember(text, asked, [])
    assert prompts.of({"prompt": "typing"})[1] == session.tokenize("typing")
    prompts.remember(text, asked, [7])
    assert prompts.of({"prompt": "typ!ed"})[1] == [*asked, 7, *session.tokenize("ed")]


def test_unless_it_is_asked_for_nothing_is_dropped():
    with pytest.raises(RefusedError, match="the prompt has 91 tokens"):
        fitted(said(*[("user", "x" * 7)] * 13), Words())
