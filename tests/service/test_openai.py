"""The OpenAI-compatible endpoints on the simulated engine."""

from __future__ import annotations

from typing import Any

import pytest

from service.schemas import ChatBody
from tests.support.serving import CHAT, Served

COMPLETE = {"prompt": "abc", "max_tokens": 6, "temperature": 0, "ignore_eos": True}


def test_an_answer_is_the_same_streamed_or_whole(simulated: Served):
    whole = simulated.client.post("/v1/chat/completions", json=CHAT).json()
    events = simulated.events("/v1/chat/completions", CHAT)
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    deltas = [event["choices"][0]["delta"].get("content", "") for event in events[:-1]]
    assert "".join(deltas) == whole["choices"][0]["message"]["content"] != ""
    assert events[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert {event["object"] for event in events[:-1]} == {"chat.completion.chunk"}
    assert whole["object"] == "chat.completion"


def test_a_stream_tells_usage_where_it_is_asked_for(simulated: Served):
    events = simulated.events("/v1/completions", {**COMPLETE, "stream_options": {"include_usage": True}})
    last = events[-2]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6
    assert last["usage"]["prompt_tokens"] == 4
    assert last["usage"]["total_tokens"] == 10
    assert last["timings"]["ttft_ms"] > 0
    assert "usage" not in simulated.events("/v1/completions", COMPLETE)[-2]


def test_max_tokens_is_exact_and_without_it_the_context_is_the_end(simulated: Served):
    short = simulated.client.post("/v1/completions", json=COMPLETE).json()
    assert short["usage"]["completion_tokens"] == 6
    assert short["choices"][0]["finish_reason"] == "length"
    rest = simulated.client.post("/v1/completions", json={**COMPLETE, "max_tokens": None}).json()
    assert rest["usage"]["total_tokens"] == simulated.generator.serving.context_tokens


def test_a_stop_string_ends_the_answer_before_it(simulated: Served):
    whole = simulated.client.post("/v1/completions", json=COMPLETE).json()["choices"][0]["text"]
    stopped = simulated.client.post("/v1/completions", json={**COMPLETE, "stop": whole[3:5]}).json()
    assert stopped["choices"][0]["text"] == whole[: whole.find(whole[3:5])]
    assert stopped["choices"][0]["finish_reason"] == "stop"


def test_a_second_turn_finds_the_first_in_the_cache(simulated: Served):
    first = [{"role": "user", "content": "a new conversation"}]
    asked = {**CHAT, "messages": first, "ignore_eos": True}
    answer = simulated.client.post("/v1/chat/completions", json=asked).json()
    text = answer["choices"][0]["message"]["content"]
    second = [*first, {"role": "assistant", "content": text}, {"role": "user", "content": "more"}]
    again = simulated.client.post("/v1/chat/completions", json={**CHAT, "messages": second}).json()
    used = answer["usage"]
    # The last token of an answer was sent but never computed.
    assert again["timings"]["cached_tokens"] >= used["prompt_tokens"] + used["completion_tokens"] - 1


@pytest.mark.parametrize(
    ("changes", "status", "param", "part"),
    [
        ({"messages": []}, 422, "messages", "at least 1"),
        ({"messages": None}, 422, "messages", "list"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 422, "messages.0.role", "'user'"),
        ({"temperature": -1}, 422, "temperature", "greater than or equal to 0"),
        ({"max_tokens": 0}, 422, "max_tokens", "greater than or equal to 1"),
        ({"top_p": 0}, 422, "top_p", "greater than 0"),
        ({"stop": ""}, 422, "stop", "at least 1"),
        ({"n": 2}, 400, "n", "only 1"),
        ({"tools": [{"type": "function"}]}, 400, "tools", "not supported"),
        ({"logprobs": True}, 400, "logprobs", "not supported"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format", "not supported"),
        ({"model": "gpt-4"}, 404, "model", "'gpt-4' is not served"),
        ({"max_tokens": -2}, 422, "max_tokens", "greater than or equal to -1"),
    ],
)
def test_what_can_not_be_done_is_refused_by_name(
    simulated: Served, changes: dict[str, Any], status: int, param: str, part: str
):
    for stream in (False, True):
        response = simulated.client.post("/v1/chat/completions", json={**CHAT, **changes, "stream": stream})
        assert response.status_code == status, response.text
        error = response.json()["error"]
        assert error["param"].startswith(param)
        assert part in error["message"]
        assert set(error) == {"message", "type", "param", "code"}


def test_the_sampling_that_is_asked_for_is_the_engine_s():
    asked = {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "seed": 3,
    }
    assert ChatBody(**CHAT | asked).generation().sampling == asked


def test_a_seed_draws_the_same_answer_again(simulated: Served):
    first, again, other = (simulated.text(temperature=1, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_fields_that_change_nothing_are_ignored(simulated: Served):
    assert simulated.text(user="me", n=1, logprobs=False, tools=[], metadata={}) == simulated.text()


def test_too_long_a_conversation_is_refused_with_both_numbers_or_loses_its_oldest_turns(simulated: Served):
    turns: list[dict[str, str]] = [{"role": "system", "content": "be kind"}]
    for number in range(60):
        turns += [
            {"role": "user", "content": f"question {number} {'x' * 60}"},
            {"role": "assistant", "content": "y" * 40},
        ]
    turns.append({"role": "user", "content": "the last one"})
    response = simulated.client.post("/v1/chat/completions", json={**CHAT, "messages": turns})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert "4096" in response.json()["error"]["message"]
    cut = {**CHAT, "messages": turns, "context_overflow": "drop_old_turns"}
    usage = simulated.client.post("/v1/chat/completions", json=cut).json()["usage"]
    assert 3900 < usage["prompt_tokens"] + CHAT["max_tokens"] <= 4096


def test_the_model_list_names_what_is_served(simulated: Served):
    (model,) = simulated.client.get("/v1/models").json()["data"]
    assert model["id"] == simulated.generator.serving.model
    assert simulated.text(model=model["id"]) == simulated.text(model="default")


def test_many_at_a_time_all_get_their_answer(simulated: Served):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda _: simulated.text(), range(40)))
    assert len(set(texts)) == 1
    assert simulated.generator.load == (0, 0)


def test_requests_are_counted(simulated: Served):
    simulated.text()
    text = simulated.client.get("/metrics").text
    assert 'cputune_requests_total{outcome="' in text
    assert "cputune_running_requests 0.0" in text
