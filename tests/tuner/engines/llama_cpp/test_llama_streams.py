"""Several streams on the real engine: how many run at once, in what cache, how prompts enter beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.vocabulary import Setting
from tests.support.builds import safe
from tuner.engines.base import EngineError
from tuner.engines.llama_cpp.session import LlamaSession

pytestmark = pytest.mark.real

STREAMS = 4
CONTEXT_TOKENS = 300
COUNTRIES = ("France", "Italy", "Germany", "England")
SETTINGS: dict[str, Setting] = safe(
    "llama_cpp", {"n_threads": 1, "n_threads_batch": 1, "n_ubatch": 128, "flash_attn": "off", "repack": True}
)


@pytest.fixture(scope="module")
def opened(demo_model: Path) -> Iterator[LlamaSession]:
    session = LlamaSession()
    session.load(demo_model, SETTINGS)
    yield session
    session.close()


def configured(opened: LlamaSession, **changes: Setting) -> LlamaSession:
    """A context that no other test has used."""
    opened.configure(SETTINGS, 64, 1)
    opened.configure({**SETTINGS, **changes}, CONTEXT_TOKENS, STREAMS)
    return opened


def run_all(session: LlamaSession, requests: int, tokens: int = 3) -> list[list[int]]:
    """Each request's tokens; all are submitted at once."""
    # Sentences with one obvious end: rounding may tip any other.
    prompts = [session.tokenize(f"The capital of {country} is the city of") for country in COUNTRIES]
    numbers = [session.add(prompt, tokens, ignore_eos=True) for prompt in prompts[:requests]]
    made: dict[int, list[int]] = {number: [] for number in numbers}
    for _ in range(1000):
        for token in session.step():
            made[token.sequence].append(token.token)
        if all(len(found) == tokens for found in made.values()):
            return list(made.values())
    raise AssertionError(made)


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("sequences", [2, 4])
def test_e12_sequences_and_the_kind_of_cache_are_read_back(
    opened: LlamaSession, sequences: int, unified: bool
) -> None:
    effective = configured(opened, n_seq_max=sequences, kv_unified=unified).effective()
    assert effective["n_seq_max"] == sequences
    assert effective["kv_unified"] is unified
    assert effective["active_streams"] == sequences


def test_fewer_sequences_take_less_memory(opened: LlamaSession) -> None:
    cells = [int(configured(opened, n_seq_max=count).effective()["n_ctx"]) for count in (2, 4)]
    assert cells[1] == 2 * cells[0]


def test_how_streams_are_served_changes_no_answer(opened: LlamaSession) -> None:
    plain = run_all(configured(opened), STREAMS)
    for changes in (
        {"n_seq_max": 2},
        {"active_streams": 1},
        {"kv_unified": True},
        {"prefill_chunk": 8},
        {"n_seq_max": 2, "kv_unified": True, "prefill_chunk": 8},
    ):
        assert run_all(configured(opened, **changes), STREAMS) == plain, changes


@pytest.mark.parametrize(
    ("changes", "most"),
    [({}, 4), ({"active_streams": 3}, 3), ({"active_streams": 1}, 1), ({"n_seq_max": 2}, 2)],
)
def test_no_more_streams_run_than_asked(opened: LlamaSession, changes: dict[str, Setting], most: int) -> None:
    session = configured(opened, **changes)
    for number in range(6):
        session.add([20 + number, *range(30, 40)], 5, ignore_eos=True)
    served = []
    while tokens := session.step():
        served.append(len(tokens))
    assert max(served) == most
    assert sum(served) == 6 * 5


@pytest.mark.parametrize(("chunk", "steps"), [(512, 1), (100, 2), (32, 7)])
def test_a_prompt_enters_in_chunks_beside_others(opened: LlamaSession, chunk: int, steps: int) -> None:
    session = configured(opened, prefill_chunk=chunk)
    running = session.add(range(30, 60), 100, ignore_eos=True)
    session.step()
    second = session.add([20 + n % 70 for n in range(200)], 4, ignore_eos=True)
    taken = 0
    while True:
        taken += 1
        made = {token.sequence for token in session.step()}
        # The one that generates is never held up.
        assert running in made
        if second in made:
            break
    assert taken == steps


def test_alone_a_prompt_has_the_whole_batch(opened: LlamaSession) -> None:
    session = configured(opened, prefill_chunk=8)
    number = session.add([20 + n % 70 for n in range(200)], 1, ignore_eos=True)
    assert [token.sequence for token in session.step()] == [number]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n_seq_max": 0}, "n_seq_max=0; at least 1"),
        ({"active_streams": 0}, "active_streams=0; at least 1"),
        ({"prefill_chunk": 0}, "prefill_chunk=0; at least 1"),
    ],
)
def test_e14_what_can_not_be_is_refused(opened: LlamaSession, changes: dict[str, Setting], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        configured(opened, **changes)
