"""The real session on the demo model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.builds import safe
from tuner.engines.base import EngineError, Sampling, Token
from tuner.engines.llama_cpp import native, smoke
from tuner.engines.llama_cpp.session import LlamaSession
from tuner.engines.llama_cpp.vocabulary import Vocabulary

pytestmark = pytest.mark.real

# One thread: several that wait for each other by spinning collapse beside a busy neighbour.
SETTINGS = safe(
    "llama_cpp",
    {
        "n_threads": 1,
        "n_threads_batch": 1,
        "n_ubatch": 128,
        "flash_attn": "off",
        "type_k": "f16",
        "type_v": "f16",
        "repack": True,
    },
)
FRANCE = "The capital of France is"
RAIN = "When it rains in the mountains, the rivers"


@pytest.fixture(scope="module")
def opened(demo_model: Path) -> Iterator[LlamaSession]:
    session = LlamaSession()
    session.load(demo_model, SETTINGS)
    yield session
    session.close()


@pytest.fixture
def session(opened: LlamaSession) -> LlamaSession:
    """The module's model on a context that no other test has used."""
    opened.configure(SETTINGS, 300, 1)
    opened.configure(SETTINGS, 256, 1)
    return opened


def finish(session: LlamaSession, *numbers: int) -> dict[int, list[Token]]:
    made: dict[int, list[Token]] = {number: [] for number in numbers}
    for _ in range(2000):
        for token in session.step():
            made[token.sequence].append(token)
        if all(tokens and tokens[-1].finish for tokens in made.values()):
            return made
    raise AssertionError(f"not finished: {made}")


def generate(session: LlamaSession, prompt: list[int], count: int = 16, **options: Any) -> list[int]:
    number = session.add(prompt, count, **options)
    return [token.token for token in finish(session, number)[number]]


def test_greedy_equals_create_completion(session: LlamaSession, demo_model: Path) -> None:
    import llama_cpp

    from tuner.engines.llama_cpp.native import LOG

    high = llama_cpp.Llama(str(demo_model), n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False)
    try:
        said = high.create_completion(FRANCE, max_tokens=16, temperature=0.0)
    finally:
        high.close()
        LOG.capture()
    made = generate(session, session.tokenize(FRANCE))
    assert session.detokenize(made).decode() == said["choices"][0]["text"]


def test_interleaved_sequences_say_the_same_as_alone(session: LlamaSession) -> None:
    prompts = [session.tokenize(text) for text in (FRANCE, RAIN)]
    alone = [generate(session, prompt) for prompt in prompts]
    session.configure(SETTINGS, 256, 2)
    first = session.add(prompts[0], 16)
    begun = session.step() + session.step()
    second = session.add(prompts[1], 16)
    made = finish(session, first, second)
    assert [token.token for token in [*begun, *made[first]]] == alone[0]
    assert [token.token for token in made[second]] == alone[1]


def test_more_requests_than_slots_wait_their_turn(session: LlamaSession) -> None:
    prompt = session.tokenize(FRANCE)
    numbers = [session.add(prompt, 4) for _ in range(3)]
    made = finish(session, *numbers)
    assert len({tuple(token.token for token in tokens) for tokens in made.values()}) == 1


def test_a_prompt_longer_than_the_batch_comes_in_chunks(opened: LlamaSession) -> None:
    prompt = (opened.tokenize(RAIN) * 100)[:600]
    opened.configure(SETTINGS, 700, 1)
    number = opened.add(prompt, 2)
    steps = [len(opened.step()) for _ in range(3)]
    assert steps == [0, 1, 1]
    opened.cancel(number)


@pytest.mark.parametrize("change", ["longer", "other end", "shorter", "same"])
def test_a_reused_prefix_changes_no_token(session: LlamaSession, change: str) -> None:
    base = session.tokenize(RAIN) * 4
    other = {
        "longer": base + session.tokenize(FRANCE),
        "other end": base[:20] + session.tokenize(FRANCE),
        "shorter": base[:25],
        "same": base,
    }[change]
    wanted = generate(session, other, 12)
    generate(session, base, 12)
    assert generate(session, other, 12, reuse_prefix=True) == wanted


def test_reuse_computes_only_what_is_new(session: LlamaSession) -> None:
    prompt = session.tokenize(RAIN) * 10
    generate(session, prompt, 2)
    session.add(prompt, 1, reuse_prefix=True)
    session._place()
    (slot,) = session._slots
    assert slot.past == len(prompt) - 1
    session.step()
    session.add(prompt, 1)
    session._place()
    assert slot.past == 0
    session.step()


def test_finish_reasons_and_ignored_eos(session: LlamaSession) -> None:
    prompt = session.tokenize(session.chat_prompt([{"role": "user", "content": "Say hi."}]) or "")
    number = session.add(prompt, 100)
    tokens = finish(session, number)[number]
    assert tokens[-1].finish == "stop"
    assert [token.finish for token in tokens[:-1]] == [None] * (len(tokens) - 1)
    number = session.add(prompt, len(tokens) + 5, ignore_eos=True)
    longer = finish(session, number)[number]
    assert len(longer) == len(tokens) + 5
    assert longer[-1].finish == "length"


def test_cancel_frees_the_slot(session: LlamaSession) -> None:
    prompt = session.tokenize(FRANCE)
    wanted = generate(session, prompt, 4)
    running = session.add(prompt, 200, ignore_eos=True)
    session.step()
    waiting = session.add(prompt, 4)
    session.cancel(running)
    session.cancel(12345)
    made = finish(session, waiting)
    assert [token.token for token in made[waiting]] == wanted


def test_cancel_from_another_thread_stops_a_long_prefill(
    opened: LlamaSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.configure({**SETTINGS, "n_ubatch": 512}, 1024, 1)
    context = opened._ready()
    decode, computing = context.decode, threading.Event()

    def decode_watched(count: int) -> None:
        computing.set()
        decode(count)

    monkeypatch.setattr(context, "decode", decode_watched)
    prompt = (opened.tokenize(RAIN) * 60)[:512]
    number = opened.add(prompt, 1)

    def cancel() -> None:
        computing.wait(10)
        opened.cancel(number)

    other = threading.Thread(target=cancel)
    other.start()
    assert opened.step() == []
    other.join()
    assert opened._slots[0].request is None
    assert len(generate(opened, prompt[:20], 3)) == 3


def test_an_aborted_batch_leaves_the_others_as_they_were(
    session: LlamaSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [session.tokenize(text) for text in (FRANCE, RAIN)]
    wanted = generate(session, prompts[0], 10)
    session.configure(SETTINGS, 256, 2)
    kept = session.add(prompts[0], 10)
    made = session.step() + session.step()
    dropped = session.add(prompts[1], 10)
    context = session._ready()
    decode = context.decode

    def decode_cancelled(count: int) -> None:
        session.cancel(dropped)
        decode(count)

    monkeypatch.setattr(context, "decode", decode_cancelled)
    assert session.step() == []
    monkeypatch.undo()
    made += finish(session, kept)[kept]
    assert [token.token for token in made if token.sequence == kept] == wanted


def test_e12_effective_settings_are_read_back(opened: LlamaSession) -> None:
    changed = {
        **SETTINGS,
        "flash_attn": "on",
        "type_k": "q8_0",
        "type_v": "q4_0",
        "n_ubatch": 32,
        "n_threads": 2,
    }
    opened.configure(changed, 256, 2)
    effective = opened.effective()
    assert {name: effective[name] for name in changed} == changed
    assert effective["n_seq_max"] == 2


def test_run_settings_keep_the_context(session: LlamaSession) -> None:
    before = session._context
    session.configure({**SETTINGS, "n_threads": 2}, 256, 1)
    assert session._context is before
    assert session.effective()["n_threads"] == 2
    session.configure({**SETTINGS, "n_ubatch": 64}, 256, 1)
    assert session._context is not before


def test_e09_a_quantized_v_cache_without_flash_attention_is_an_error(session: LlamaSession) -> None:
    with pytest.raises(EngineError, match="quantized V cache requires flash_attn"):
        session.configure({**SETTINGS, "type_v": "q8_0"}, 256, 1)
    session.configure(SETTINGS, 256, 1)
    assert len(generate(session, session.tokenize(FRANCE), 2)) == 2


@pytest.mark.parametrize(
    ("changes", "context_tokens", "streams"),
    [
        ({"n_ubatch": 0}, 256, 1),
        ({"n_threads": 0}, 256, 1),
        ({}, 1, 1),
        ({}, 256, 0),
        ({"type_k": "q9"}, 256, 1),
    ],
)
def test_e14_degenerate_sizes_are_refused(
    session: LlamaSession, changes: dict[str, int], context_tokens: int, streams: int
) -> None:
    with pytest.raises(EngineError):
        session.configure({**SETTINGS, **changes}, context_tokens, streams)


@pytest.mark.parametrize(("prompt", "count"), [([], 1), ([1], 0), ([1] * 250, 10), ([10**6], 1), ([-1], 1)])
def test_impossible_requests_are_refused(session: LlamaSession, prompt: list[int], count: int) -> None:
    with pytest.raises(EngineError):
        session.add(prompt, count)


def test_sampling_is_seeded(session: LlamaSession) -> None:
    prompt = session.tokenize(RAIN)
    hot = [
        Sampling(temperature=1.5, top_p=1.0, min_p=0.0, repetition_penalty=1.1, seed=seed)
        for seed in (1, 1, 2)
    ]
    made = [generate(session, prompt, 12, sampling=sampling, ignore_eos=True) for sampling in hot]
    assert made[0] == made[1] != made[2]


def test_m06_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "odd.gguf"
    writer = gguf.GGUFWriter(path, "notarch")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(EngineError, match=r"llama.cpp .* unknown model architecture: 'notarch'"):
        LlamaSession().load(path, SETTINGS)


def test_tokens_come_back_as_bytes(session: LlamaSession) -> None:
    text = "Grüße, 世界! def f(x): return x"
    assert session.detokenize(session.tokenize(text)).decode() == text


def test_m07_without_a_template_there_is_no_guess(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(smoke.tiny_model())
    session = LlamaSession()
    session.load(path, SETTINGS)
    assert session.chat_prompt([{"role": "user", "content": "hi"}]) is None
    with pytest.raises(EngineError, match="has no tokenizer"):
        session.tokenize("hi")
    session.close()


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses: roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "refuses: access to attribute '__class__'"),
        ("{% for %}", "is broken"),
        ("{{ messages[7].content }}", "refuses"),
    ],
)
def test_templates_run_in_a_sandbox(
    opened: LlamaSession, monkeypatch: pytest.MonkeyPatch, template: str, expected: str
) -> None:
    monkeypatch.setattr(native.low, "llama_model_chat_template", lambda *_: template.encode())
    with pytest.raises(EngineError) as caught:
        Vocabulary(opened._loaded().handle).chat_prompt([{"role": "user", "content": "hi"}])
    assert expected in str(caught.value)


def test_s15_ten_contexts_do_not_grow_memory(opened: LlamaSession) -> None:
    def anonymous_mib() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

    prompt = opened.tokenize(RAIN) * 5
    seen = []
    for number in range(13):
        opened.configure({**SETTINGS, "n_ubatch": 64 if number % 2 else 128}, 256, 1 + number % 2)
        generate(opened, prompt, 3)
        seen.append(anonymous_mib())
    assert seen[-1] - seen[2] < 8, seen
