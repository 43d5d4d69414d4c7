"""A short round decodes in the middle of the answer, where that is deeper than its beginning."""

from collections.abc import Callable, Mapping

import pytest

from profiles.vocabulary import WORKLOADS, Config, Workload
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.engines.simulated.session import SimulatedSession
from tuner.measurement.asked import ask_of, depth_tokens
from tuner.measurement.bench import Bench
from tuner.measurement.isolation import Worker
from tuner.measurement.prompts import Prompts
from tuner.measurement.rounds import run_round

DECODE, PREFILL = frozenset({Phase.DECODE}), frozenset({Phase.PREFILL})
CHAT = WORKLOADS["chat"]


@pytest.fixture
def prompts() -> Prompts:
    return Prompts(1024, 0)


@pytest.mark.parametrize(
    ("name", "deeper"), [("chat", 54), ("writer", 118), ("rag", 0), ("long", 0), ("batch", 0)]
)
def test_only_where_the_middle_is_much_deeper(name: str, deeper: int):
    assert depth_tokens(WORKLOADS[name], 20) == deeper


@pytest.mark.parametrize(("chunk", "tokens"), [(512, 22), (128, 28), (32, 52)])
def test_of_several_streams_the_first_still_generates_when_the_last_begins(
    prompts: Prompts, chunk: int, tokens: int
):
    ask = ask_of(WORKLOADS["batch"], "short", BOTH_PHASES, prompts, prefill_chunk=chunk)
    assert (len(ask.prompts), ask.output_tokens, ask.deeper) == (8, tokens, ())


def test_twenty_tokens_lie_around_the_middle_of_the_answer():
    begins = CHAT.prompt_tokens + depth_tokens(CHAT, 20)
    assert begins + 10 == CHAT.prompt_tokens + CHAT.output_tokens / 2


def test_a_full_round_and_a_prefill_alone_have_the_prompt_only(prompts: Prompts):
    for kind, phases, tokens in (("full", BOTH_PHASES, 128), ("short", PREFILL, 1)):
        ask = ask_of(CHAT, kind, phases, prompts)
        assert (len(ask.prompts[0]), ask.output_tokens, ask.deeper) == (128, tokens, ())
        assert ask.cached == ask.prompts


def test_decoding_goes_on_where_the_cache_is(prompts: Prompts):
    both = ask_of(CHAT, "short", BOTH_PHASES, prompts)
    again = ask_of(CHAT, "short", DECODE, prompts, cached=both.cached)
    assert again.prompts == both.cached
    assert len(again.prompts[0]) == 128 + 54
    after_prefill = ask_of(CHAT, "short", DECODE, prompts, cached=again.prompts and [[7] * 128])
    assert after_prefill.prompts[0][:128] == [7] * 128
    assert len(after_prefill.prompts[0]) == 128 + 54
    assert ask_of(CHAT, "short", DECODE, prompts).prompts[0] != both.cached[0]


def test_what_lies_between_is_in_no_tokens_time(session: SimulatedSession):
    plain = run_round(session, [[6] * 40], 5).token_ns[0]
    deep = run_round(session, [[6] * 40], 5, deeper=[[7] * 100]).token_ns[0]
    assert len(deep) == 5
    assert deep[0] == plain[0]
    gaps = [times[4] - times[3] for times in (plain, deep)]
    # Deeper, each token takes longer; the hundred between would take seconds.
    assert gaps[0] < gaps[1] < 2 * gaps[0]
    assert deep[1] - deep[0] == pytest.approx(gaps[1], rel=0.01)


@pytest.fixture
def session(tmp_path) -> SimulatedSession:
    path = tmp_path / "model"
    path.write_bytes(b"model")
    session = SimulatedSession()
    session.load(path, {})
    settings = {
        "n_threads": 1, "n_threads_batch": 1, "n_ubatch": 64, "flash_attn": "off", "type_k": "f16",
        "type_v": "f16",
    }  # fmt: skip
    session.configure(settings, 512, 1)
    return session


def test_another_thread_count_computes_no_prompt_again(
    make_bench: Callable[..., Bench], default: Config, monkeypatch: pytest.MonkeyPatch
):
    """A change of run scope keeps the cache: the round has the prompt of before, and one token to compute."""
    asked: list[Mapping[str, object]] = []
    original = Worker.request

    def spy(self: Worker, op: str, payload: Mapping[str, object], *args: float, **named: float) -> object:
        if op == "round":
            asked.append(payload)
        return original(self, op, payload, *args, **named)

    monkeypatch.setattr(Worker, "request", spy)
    bench = make_bench(workload=Workload("deep", 64, 64))
    both = bench.measure(default, rounds=1).rounds[0]
    decode = bench.measure(default.with_settings(n_threads=1), rounds=1, phases=DECODE).rounds[0]
    first, then = asked[-2:]
    assert then["prompts"] == [[*first["prompts"][0], *first["deeper"][0]]]
    assert then["reuse_prefix"]
    # 20 tokens, of which the first is computed from the cache as well.
    assert decode.facts["wall_ns"] < both.facts["wall_ns"] - both.ttft_ms[0] * 1e6
    assert decode.gaps_ms[0][5] == pytest.approx(both.gaps_ms[0][5], rel=0.01)
