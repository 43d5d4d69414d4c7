"""The real session on a small model, beyond the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError, Sampling
from tuner.engines.contract import finish, prompt
from tuner.engines.openvino.session import OpenVinoSession

pytestmark = pytest.mark.real

EXACT: dict[str, Setting] = {
    "inference_num_threads": 1,
    "enable_cpu_pinning": False,
    "inference_precision_hint": "f32",
    "kv_cache_precision": "f32",
    "dynamic_quantization_group_size": 0,
}


@pytest.fixture(scope="module", params=["sdpa", "paged"])
def session(request: pytest.FixtureRequest, small_folder: Path) -> Iterator[OpenVinoSession]:
    opened = OpenVinoSession()
    opened.load(small_folder, {**EXACT, "attention_backend": request.param})
    yield opened
    opened.close()


@pytest.fixture
def three(session: OpenVinoSession) -> OpenVinoSession:
    session.configure({"active_streams": 3, "prefill_chunk": 32}, 160, 3)
    return session


def greedy(session: OpenVinoSession, tokens: list[int], length: int, *, reuse: bool = False) -> list[int]:
    number = session.add(tokens, length, ignore_eos=True, reuse_prefix=reuse)
    return [token.token for token in finish(session, [number])[0]]


def test_e06_settings_are_read_back_from_the_compiled_model(session: OpenVinoSession) -> None:
    session.configure({}, 64, 1)
    held = session.effective()
    assert {name: held[name] for name in EXACT} == EXACT


def test_side_by_side_is_as_alone(three: OpenVinoSession) -> None:
    prompts = [prompt(40), prompt(70, start=35), prompt(20, start=60)]
    alone = [greedy(three, one, 8) for one in prompts]
    numbers = [three.add(one, 8, ignore_eos=True) for one in prompts]
    together = [[token.token for token in tokens] for tokens in finish(three, numbers)]
    assert together == alone


def test_an_answer_goes_on_after_a_reused_prefix(three: OpenVinoSession) -> None:
    first = greedy(three, prompt(60), 6)
    longer = [*prompt(60), *first]
    whole = greedy(three, longer, 6)
    assert greedy(three, longer, 6, reuse=True) == whole
    # Cut back in the middle, then on another way.
    other = [*prompt(50), 7, 8, 9]
    expected = greedy(three, other, 6)
    greedy(three, longer, 2)
    assert greedy(three, other, 6, reuse=True) == expected


def test_what_is_tuned_here_serves_there(small_folder: Path, session: OpenVinoSession) -> None:
    """GenAI's continuous batching pipeline gives the same answer from the same graph."""
    import numpy as np
    import openvino as ov
    import openvino_genai

    properties = {name.upper(): value for name, value in EXACT.items()}
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        small_folder, openvino_genai.SchedulerConfig(), "CPU", properties
    )
    wanted = openvino_genai.GenerationConfig()
    wanted.max_new_tokens, wanted.ignore_eos, wanted.do_sample = 10, True, False
    handle = pipeline.add_request(0, ov.Tensor(np.array([prompt(50)])), wanted)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    (answer,) = handle.read_all()
    session.configure({}, 96, 1)
    assert greedy(session, prompt(50), 10) == answer.generated_ids


def test_a_long_prompt_enters_beside_a_running_sequence(three: OpenVinoSession) -> None:
    running = three.add(prompt(10), 20, ignore_eos=True)
    three.step()
    late = three.add(prompt(80), 2, ignore_eos=True)
    steps = 0
    seen: set[int] = set()
    while late not in seen:
        seen |= {token.sequence for token in three.step()}
        steps += 1
    assert steps >= 80 // 32
    three.cancel(running)
    three.cancel(late)
    assert three.step() == []


def test_a_drawn_answer_repeats_by_its_seed(three: OpenVinoSession) -> None:
    def drawn(seed: int) -> list[int]:
        number = three.add(prompt(30), 12, sampling=Sampling(temperature=1.5, top_k=0, seed=seed))
        return [token.token for token in finish(three, [number])[0]]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_bytes_of_a_character_in_two_tokens(session: OpenVinoSession) -> None:
    text = "日本語 🙂 naïve"
    tokens = session.tokenize(text, leading=False)
    assert len(tokens) > len(text) / 2
    assert b"".join(session.detokenize([token]) for token in tokens) == text.encode()


def test_nothing_runs_before_it_is_configured(small_folder: Path) -> None:
    session = OpenVinoSession()
    with pytest.raises(EngineError, match="no model is loaded"):
        session.tokenize("x")
    with pytest.raises(EngineError, match="not configured"):
        session.step()
    with pytest.raises(EngineError, match="Tokenizer vocab is empty"):
        session.load(small_folder.parent, {})


def test_what_openvino_refuses_is_one_line(small_folder: Path) -> None:
    session = OpenVinoSession()
    with pytest.raises(EngineError) as refused:
        session.load(small_folder, {"kv_cache_precision": "f32", "inference_precision_hint": "i3"})
    assert "\n" not in str(refused.value)
