"""A known beginning of a text keeps the token ids that it came from."""

from collections.abc import Sequence

from service.generator.conversation import Conversations


def tokenize(text: str, *, leading: bool = True) -> Sequence[int]:
    return [1, *text.encode()] if leading else list(text.encode())


def test_an_unknown_text_is_tokenized_with_its_leading_token():
    assert Conversations(4).tokens("hi", tokenize) == [1, 104, 105]


def test_the_ids_of_the_longest_known_beginning_are_kept():
    known = Conversations(4)
    known.remember("a", [900])
    known.remember("ab", [901])
    assert known.tokens("abc", tokenize) == [901, 99]
    assert known.tokens("ab", tokenize) == [901]


def test_the_least_recently_used_text_is_forgotten():
    known = Conversations(2)
    known.remember("a", [900])
    known.remember("b", [901])
    known.tokens("a!", tokenize)
    known.remember("c", [902])
    assert known.tokens("a", tokenize) == [900]
    assert known.tokens("b", tokenize) == [1, 98]
