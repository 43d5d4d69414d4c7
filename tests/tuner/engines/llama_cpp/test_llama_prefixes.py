"""Whose KV cache is reused for a new prompt, and whose is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builds import safe
from tuner.engines.llama_cpp.session import WORTH_COPYING, LlamaSession

pytestmark = pytest.mark.real

SETTINGS = safe(
    "llama_cpp",
    {"n_threads": 1, "n_threads_batch": 1, "n_ubatch": 128, "flash_attn": "off", "type_k": "f16",
     "type_v": "f16", "repack": True},
)  # fmt: skip
SYSTEM = [300 + i % 90 for i in range(WORTH_COPYING + 36)]
ONE = [*SYSTEM, *range(500, 540)]
TWO = [*SYSTEM, *range(700, 760)]
OTHER = list(range(900, 990))


@pytest.fixture
def session(demo_model: Path) -> Iterator[LlamaSession]:
    session = LlamaSession()
    session.load(demo_model, SETTINGS)
    session.configure(SETTINGS, 256, 2)
    yield session
    session.close()


def ask(session: LlamaSession, prompt: list[int]) -> tuple[list[int], int]:
    """Three tokens after a prompt, and how many of the prompt's were in the cache."""
    number = session.add(prompt, 3, ignore_eos=True, reuse_prefix=True)
    made = []
    while len(made) < 3:
        made += [token.token for token in session.step()]
    return made, session.reused(number)


def test_a_shared_beginning_is_computed_once_and_takes_nothing_away(session: LlamaSession):
    first, _ = ask(session, ONE)
    _, shared = ask(session, TWO)
    assert shared == len(SYSTEM)
    again, kept = ask(session, ONE)
    assert kept == len(ONE) - 1
    assert again == first


def test_a_copied_beginning_gives_the_answer_of_a_computed_one(session: LlamaSession):
    alone, _ = ask(session, TWO)
    session.configure(SETTINGS, 192, 2)
    ask(session, ONE)
    copied, shared = ask(session, TWO)
    assert shared == len(SYSTEM)
    assert copied == alone


def test_a_beginning_of_a_running_request_is_copied_too(session: LlamaSession):
    running = session.add(ONE, 20, ignore_eos=True, reuse_prefix=True)
    while not session.step():
        pass
    second = session.add(TWO, 3, ignore_eos=True, reuse_prefix=True)
    made: dict[int, list[int]] = {running: [], second: []}
    while len(made[running]) < 19 or len(made[second]) < 3:
        for token in session.step():
            made[token.sequence].append(token.token)
    assert session.reused(second) == len(SYSTEM)


def test_a_foreign_prompt_takes_the_place_that_is_worth_least(session: LlamaSession):
    ask(session, ONE)
    ask(session, OTHER[:20])
    _, reused = ask(session, OTHER)
    assert reused == 20
    _, kept = ask(session, ONE)
    assert kept == len(ONE) - 1
