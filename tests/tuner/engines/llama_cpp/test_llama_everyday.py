"""`Llama.create_completion` as a session: the same answers as the loop that is tuned, timed as it comes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.builds import everyday_model, unsafe
from tuner.engines.base import EngineError, Sampling
from tuner.engines.llama_cpp import smoke
from tuner.engines.llama_cpp.everyday import EverydaySession
from tuner.engines.llama_cpp.session import LlamaSession
from tuner.measurement.rounds import run_round

pytestmark = pytest.mark.real

PROMPTS = [[random.Random(seed).randint(1000, 48000) for _ in range(40)] for seed in range(2)]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everyday_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def everyday(model_path: Path) -> Iterator[EverydaySession]:
    session = EverydaySession()
    session.load(model_path, {})
    session.configure({}, 80, 1)
    yield session
    session.close()


def answer(session: EverydaySession | LlamaSession, prompt: list[int], count: int) -> list[int]:
    number = session.add(prompt, count, ignore_eos=True)
    made = []
    while len(made) < count:
        made += [token.token for token in session.step() if token.sequence == number]
    return made


def test_its_tokens_are_the_session_loops(everyday: EverydaySession, model_path: Path) -> None:
    effective = everyday.effective()
    loop = LlamaSession()
    loop.load(model_path, {"repack": ("repack", True) not in unsafe("llama_cpp")})
    own = {name: effective[name] for name in ("n_threads", "n_threads_batch", "n_ubatch", "flash_attn")}
    loop.configure({**own, "type_k": effective["type_k"], "type_v": effective["type_v"]}, 80, 1)
    for prompt in PROMPTS:
        assert answer(everyday, prompt, 30) == answer(loop, prompt, 30)
    loop.close()


def test_an_end_of_text_does_not_end_it(everyday: EverydaySession, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = answer(everyday, PROMPTS[0], 10)
    llama = everyday._ready()
    monkeypatch.setattr(llama, "_ends", {plain[3]})
    assert answer(everyday, PROMPTS[0], 10) == plain


def test_the_round_loop_times_it(everyday: EverydaySession) -> None:
    first = run_round(everyday, [PROMPTS[0]], 12)
    (times,) = first.token_ns
    assert len(times) == 12
    assert times[0] > 0
    assert all(earlier < later for earlier, later in pairwise(times))
    # A prompt that is known already is computed again unless that is not wanted.
    again = run_round(everyday, [PROMPTS[0]], 12)
    known = run_round(everyday, [PROMPTS[0]], 12, reuse_prefix=True)
    assert again.token_ns[0][0] > 1.5 * known.token_ns[0][0]


def test_it_is_what_a_user_gets_who_sets_nothing(everyday: EverydaySession) -> None:
    from llama_cpp import Llama

    llama = everyday._ready()
    effective = everyday.effective()
    assert isinstance(llama, Llama)
    assert (effective["n_threads"], effective["n_threads_batch"]) == (llama.n_threads, llama.n_threads_batch)
    assert (effective["n_ubatch"], effective["n_ctx"], effective["flash_attn"]) == (512, 512, "off")
    assert everyday.detokenize(everyday.tokenize("hello world")).strip() == b"hello world"


def test_what_it_does_not_do_is_refused(everyday: EverydaySession, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="takes no settings"):
        everyday.configure({"n_threads": 2}, 80, 1)
    with pytest.raises(EngineError, match="answers one"):
        everyday.configure({}, 80, 2)
    with pytest.raises(EngineError, match="exact length only"):
        everyday.add(PROMPTS[0], 4)
    with pytest.raises(EngineError, match="exact length only"):
        everyday.add(PROMPTS[0], 4, ignore_eos=True, sampling=Sampling(temperature=1))
    with pytest.raises(EngineError, match="80 at most"):
        everyday.add(PROMPTS[0], 41, ignore_eos=True)
    with pytest.raises(OSError, match="absent"):
        EverydaySession().load(tmp_path / "absent.gguf", {})


def test_a_cancelled_request_is_gone(everyday: EverydaySession) -> None:
    waiting = everyday.add(PROMPTS[0], 4, ignore_eos=True)
    everyday.cancel(waiting)
    assert everyday.step() == []
    begun = everyday.add(PROMPTS[0], 4, ignore_eos=True)
    assert len(everyday.step()) == 1
    everyday.cancel(begun)
    assert everyday.step() == []


def test_a_model_without_text_has_no_such_number(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(smoke.tiny_model())
    session = EverydaySession()
    session.load(path, {})
    with pytest.raises(EngineError, match="has no tokenizer"):
        session.configure({}, 32, 1)
    path.write_bytes(b"GGUF")
    with pytest.raises(EngineError):
        session.configure({}, 32, 1)
