"""What is asked of a server, how its answers become samples, and one clear line for everything else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from profiles.vocabulary import RoundSamples, Workload
from tests.support.openai_server import Fake, serving
from tuner.errors import ServerError, UsageError
from tuner.measurement.answers import Answer
from tuner.measurement.endpoint import Endpoint

WORK = Workload("w", 20, 16)


@contextmanager
def asking(
    fake: Fake, *, model: str = "", token: str | None = None, silence_s: float = 5.0
) -> Iterator[Endpoint]:
    with serving(fake) as url, Endpoint(url, model=model, token=token, silence_s=silence_s) as endpoint:
        yield endpoint


def one_round(fake: Fake, workload: Workload = WORK, **how: Any) -> tuple[Endpoint, RoundSamples]:
    with asking(fake, **how) as endpoint:
        endpoint.choose_model()
        endpoint.calibrate(workload.prompt_tokens)
        return endpoint, endpoint.round(workload)


def test_a_round_is_the_whole_workload() -> None:
    fake = Fake(token_s=0.002)
    endpoint, samples = one_round(fake)
    assert (samples.kind, len(samples.ttft_ms), len(samples.gaps_ms[0])) == ("full", 1, 15)
    assert samples.response_ms[0] == pytest.approx(samples.ttft_ms[0] + sum(samples.gaps_ms[0]))
    assert samples.response_ms[0] >= 16 * 2
    assert endpoint.notes == []
    asked = fake.bodies[-1]
    assert (asked["max_tokens"], asked["ignore_eos"], asked["temperature"]) == (16, True, 0.0)
    assert fake.counted(fake.prompts[0]) == 20


def test_every_prompt_is_another_one() -> None:
    fake = Fake()
    with asking(fake) as endpoint:
        endpoint.choose_model()
        endpoint.calibrate(20)
        for _ in range(3):
            endpoint.round(WORK)
    assert len(set(fake.prompts)) == 3


@pytest.mark.parametrize(("per_word", "overhead"), [(1.0, 0), (1.0, 7), (1.5, 3), (0.5, 0)])
def test_prompts_are_as_long_as_the_server_counts(per_word: float, overhead: int) -> None:
    fake = Fake(tokens_per_word=per_word, overhead=overhead)
    endpoint, _ = one_round(fake, Workload("w", 200, 16))
    assert fake.counted(fake.prompts[0]) == pytest.approx(200, rel=0.05)
    assert endpoint.notes == [] or "200 were asked" in endpoint.notes[0]


def test_streams_are_asked_at_once() -> None:
    fake = Fake(token_s=0.002)
    _, samples = one_round(fake, Workload("w", 20, 16, streams=4))
    assert len(samples.ttft_ms) == len(samples.response_ms) == 4
    # One after the other they would take four times as long.
    assert samples.wall_ms < 3 * min(samples.response_ms)


def test_the_url_may_end_in_v1_and_models_may_be_missing() -> None:
    with serving(Fake(models=("default",), has_models=False)) as url, Endpoint(f"{url}/v1/") as endpoint:
        assert endpoint.choose_model() == "default"
        endpoint.calibrate(8)


def test_a_server_that_only_chats() -> None:
    fake = Fake(has_completions=False)
    _, samples = one_round(fake)
    assert len(samples.gaps_ms[0]) == 15
    assert "messages" in fake.bodies[-1]


def test_a_server_that_refuses_what_it_does_not_know() -> None:
    fake = Fake(refuses_extras=True)
    endpoint, _ = one_round(fake)
    assert set(fake.bodies[-1]) == {"model", "prompt", "max_tokens", "temperature", "stream"}
    assert endpoint.notes[0] == "it refuses ignore_eos: answers may end early"


def test_without_usage_the_limit_counts_or_the_pieces() -> None:
    endpoint, samples = one_round(Fake(tells_usage=False, piece=4))
    assert len(samples.gaps_ms[0]) == 15
    assert any("how long prompts are" in note for note in endpoint.notes)
    assert not any("pieces of text were counted" in note for note in endpoint.notes)
    endpoint, _ = one_round(Fake(tells_usage=False, ends_after=10, knows_ignore_eos=False))
    assert any("pieces of text were counted" in note for note in endpoint.notes)
    assert any("answers of 10 tokens came" in note for note in endpoint.notes)


def test_pieces_of_several_tokens_have_mean_gaps() -> None:
    endpoint, samples = one_round(Fake(piece=4, token_s=0.002))
    assert len(samples.gaps_ms[0]) == 15
    assert len(set(samples.gaps_ms[0])) == 1
    assert endpoint.notes == ["its pieces of text hold several tokens: gaps are means"]


def test_fewer_tokens_are_told_and_extrapolated() -> None:
    endpoint, samples = one_round(Fake(ends_after=10, knows_ignore_eos=False, token_s=0.002))
    assert len(samples.gaps_ms[0]) == 15
    assert endpoint.notes[0].startswith("answers of 10 tokens came where 16 were asked")


def test_ignore_eos_keeps_a_server_going_that_knows_it() -> None:
    endpoint, samples = one_round(Fake(ends_after=3))
    assert (len(samples.gaps_ms[0]), endpoint.notes) == (15, [])


def test_samples_of_an_answer() -> None:
    exact = Answer((10_000_000, 12_000_000, 15_000_000), 3)
    assert exact.samples(3) == (10.0, (2.0, 3.0), 15.0)
    merged = Answer((10_000_000, 16_000_000), 4)
    assert merged.samples(4) == (10.0, (2.0, 2.0, 2.0), 16.0)
    assert exact.samples(5) == (10.0, (2.5, 2.5, 2.5, 2.5), 20.0)


@pytest.mark.parametrize(
    ("fake", "says"),
    [
        (Fake(ends_after=3, knows_ignore_eos=False), "ended its answer after 3 of 16 tokens"),
        (Fake(streams=False), "does not stream: it answered application/json"),
        (Fake(dies_after=5), "broke off after 5 of 16 tokens"),
        (Fake(stops_short=True), "broke off after 16 of 16 tokens"),
        (Fake(fails_after=5), "failed after 5 of 16 tokens: out of memory"),
        (Fake(token="secret"), r"refuses the token \(401 invalid api key\): give one with --token-env"),
        (Fake(models=()), "has no model"),
    ],
)  # fmt: skip
def test_what_can_t_be_measured_is_one_line(fake: Fake, says: str) -> None:
    with pytest.raises(ServerError, match=says) as failed:
        one_round(fake)
    assert "\n" not in str(failed.value)


def test_a_silent_server_is_given_up() -> None:
    with pytest.raises(ServerError, match=r"was silent for 0\.2 s after 5 of 16 tokens"):
        one_round(Fake(hangs_after=5), silence_s=0.2)


def test_a_token_opens_the_door() -> None:
    assert one_round(Fake(token="secret"), token="secret")[1].response_ms


def test_the_model_s_name() -> None:
    assert one_round(Fake(models=("a", "b")), model="b")[0].model == "b"
    with pytest.raises(UsageError, match="several models: name one with --model: a, b"):
        one_round(Fake(models=("a", "b")))
    with pytest.raises(UsageError, match="has no model 'c': it has a, b"):
        one_round(Fake(models=("a", "b")), model="c")
    with asking(Fake(models=("m:latest",)), model="m") as ollama:
        assert ollama.choose_model() == "m"


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            Endpoint(url) as endpoint,
            pytest.raises(ServerError, match="can't be reached: Connection refused"),
        ):
            endpoint.choose_model()


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://", "no address", "http://[::1"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="is no address: write it like http"):
        Endpoint(url)


def test_a_server_of_another_kind() -> None:
    with serving(Fake()) as url, Endpoint(f"{url}/other/v1") as endpoint:
        # No list of models there, and no answers either.
        endpoint.choose_model()
        with pytest.raises(ServerError, match="answered 404 to /other/v1/chat/completions"):
            endpoint.calibrate(8)
