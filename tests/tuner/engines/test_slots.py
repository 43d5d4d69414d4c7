"""The loop over slots, on caches that only remember what they were fed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tuner.engines.base import EngineError, Token
from tuner.engines.choosing import Logits
from tuner.engines.slots import SlotLoop

VOCABULARY = 50


class Counting:
    """After a token comes the next number."""

    def __init__(self, *, can_cut: bool = True) -> None:
        self.held: list[int] = []
        self.fed: list[int] = []
        self.can_cut = can_cut
        self.fails = False

    def feed(self, tokens: Sequence[int]) -> Logits:
        if self.fails:
            raise EngineError("no")
        self.held += tokens
        self.fed.append(len(tokens))
        return np.eye(VOCABULARY, dtype=np.float32)[(tokens[-1] + 1) % VOCABULARY]

    def keep(self, tokens: int) -> int:
        kept = tokens if self.can_cut else 0
        del self.held[kept:]
        return kept


def loop_on(*caches: Counting, chunk: int | None = None) -> SlotLoop:
    return SlotLoop(
        caches, context_tokens=40, vocabulary_size=VOCABULARY, ends=frozenset({49}), prefill_chunk=chunk
    )


def run(loop: SlotLoop, steps: int = 100) -> dict[int, list[Token]]:
    made: dict[int, list[Token]] = {}
    for _ in range(steps):
        for token in loop.step():
            made.setdefault(token.sequence, []).append(token)
    return made


def test_streams_take_turns() -> None:
    loop = loop_on(Counting(), Counting())
    numbers = [loop.add([start], 3) for start in (10, 20)]
    assert [token.sequence for _ in range(6) for token in loop.step()] == numbers * 3


def test_each_computes_its_own_tokens_once() -> None:
    caches = Counting(), Counting()
    loop = loop_on(*caches)
    first, second = loop.add([1, 2, 3], 4), loop.add([30, 31], 2)
    made = run(loop)
    assert [token.token for token in made[first]] == [4, 5, 6, 7]
    assert [token.token for token in made[second]] == [32, 33]
    assert [cache.held for cache in caches] == [[1, 2, 3, 4, 5, 6], [30, 31, 32]]


def test_more_requests_than_slots_wait_their_turn() -> None:
    loop = loop_on(Counting())
    numbers = [loop.add([1], 2) for _ in range(3)]
    assert list(run(loop)) == numbers


def test_a_prompt_in_parts_lets_others_go_on() -> None:
    slow = Counting()
    loop = loop_on(Counting(), slow, chunk=4)
    talking = loop.add([5], 30)
    loop.step()
    loop.add(list(range(10)), 1)
    came = [token.sequence for _ in range(5) for token in loop.step()]
    assert came.count(talking) == 2
    run(loop, 3)
    assert slow.fed == [4, 4, 2]


@pytest.mark.parametrize(("can_cut", "reused"), [(True, 3), (False, 0)])
def test_a_prefix_is_kept_where_the_cache_can_be_cut(can_cut: bool, reused: int) -> None:
    cache = Counting(can_cut=can_cut)
    loop = loop_on(cache)
    loop.add([1, 2, 3, 4], 3)
    run(loop)
    number = loop.add([1, 2, 3, 9], 1, reuse_prefix=True)
    made = run(loop)
    assert [token.token for token in made[number]] == [10]
    assert loop.reused(number) == reused
    assert cache.held == [1, 2, 3, 9]


def test_without_reuse_everything_is_computed_again() -> None:
    cache = Counting()
    loop = loop_on(cache)
    for _ in range(2):
        number = loop.add([1, 2, 3], 1)
        run(loop)
        assert loop.reused(number) == 0
    assert cache.fed == [3, 3]


def test_the_slot_with_the_longest_prefix_is_taken() -> None:
    caches = Counting(), Counting()
    loop = loop_on(*caches)
    loop.add([1, 2, 3, 4], 1)
    loop.add([11, 12, 13], 1)
    run(loop)
    number = loop.add([11, 12, 13, 14], 1, reuse_prefix=True)
    run(loop)
    assert loop.reused(number) == 3
    assert caches[0].held == [1, 2, 3, 4]


def test_an_answer_ends_at_an_end_token_or_at_its_length() -> None:
    loop = loop_on(Counting())
    stopped, ignored = loop.add([46], 10), loop.add([46], 10, ignore_eos=True)
    made = run(loop)
    assert [token.finish for token in made[stopped]] == [None, None, "stop"]
    assert [token.finish for token in made[ignored]] == [None] * 9 + ["length"]


def test_cancel_drops_what_runs_and_what_waits() -> None:
    loop = loop_on(Counting())
    running, waiting, kept = (loop.add([start], 30) for start in (1, 10, 20))
    loop.step()
    for number in (running, waiting, 12345):
        loop.cancel(number)
    assert set(run(loop)) == {kept}


def test_a_failed_step_is_told_and_leaves_a_usable_loop() -> None:
    cache = Counting()
    loop = loop_on(cache)
    number = loop.add([1, 2], 3)
    loop.step()
    cache.fails = True
    with pytest.raises(EngineError, match="no"):
        loop.step()
    cache.fails = False
    made = run(loop)
    assert [token.token for token in made[number]] == [4, 5]
    assert cache.held == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("prompt", "count", "said"),
    [([], 1, "at least 1"), ([1], 0, "at least 1"), ([1] * 39, 2, "above the context of 40"),
     ([50], 1, "token 50 is outside"), ([-1], 1, "token -1 is outside")],
)  # fmt: skip
def test_prompts_that_can_not_be_run(prompt: list[int], count: int, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        loop_on(Counting()).add(prompt, count)
