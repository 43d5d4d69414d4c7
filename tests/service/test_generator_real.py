"""The generator on the real engine: clients that leave, workers that die, prompts of many kinds."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from service.generator.generator import State
from service.generator.launching import Serving, serving_of
from tests.support.serving import CHAT, Served, events_of, serving
from tuner.home import Home

pytestmark = pytest.mark.real
LONG = {**CHAT, "max_tokens": 1500, "ignore_eos": True}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service on the demo model, on one thread: two that spin collapse beside a busy neighbour."""

    def on_one_thread(*arguments: Any) -> Serving:
        found = serving_of(*arguments)
        return replace(found, run_settings={**found.run_settings, "n_threads": 1, "n_threads_batch": 1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.app.serving_of", on_one_thread)
        home = Home(tmp_path_factory.mktemp("real"))
        with serving(home, engine="llama_cpp", context_tokens=2048) as served:
            yield served


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    pause = threading.Event()
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not come about in time"
        pause.wait(0.01)


def test_a_chat_streams_what_it_answers_whole(real: Served):
    events = real.events("/v1/chat/completions", CHAT)
    streamed = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert streamed == real.text() != ""


def test_a_client_that_leaves_frees_its_place(real: Served):
    with real.client.stream("POST", "/v1/chat/completions", json={**LONG, "stream": True}) as response:
        events = events_of(response)
        next(events)
        assert real.generator.load[0] == 1
    wait_for(lambda: real.generator.load == (0, 0))
    assert real.text()


def test_a_worker_that_dies_ends_its_streams_and_the_next_request_works(real: Served):
    restarts = real.generator.restarts
    with real.client.stream("POST", "/v1/chat/completions", json={**LONG, "stream": True}) as response:
        events = events_of(response)
        next(events)
        assert real.generator.worker_pid is not None
        os.kill(real.generator.worker_pid, signal.SIGKILL)
        rest = list(events)
    assert rest[-1] == "[DONE]"
    assert rest[-2]["error"]["code"] == "worker_failed"
    assert real.text()
    assert real.generator.restarts == restarts + 1
    assert real.generator.state is State.READY


def test_a_second_turn_computes_only_what_is_new(real: Served):
    first = [{"role": "user", "content": "Tell me a story about a lighthouse. " * 20}]
    asked = {**CHAT, "messages": first, "max_tokens": 40}
    answer = real.client.post("/v1/chat/completions", json=asked).json()
    text = answer["choices"][0]["message"]["content"]
    second = [*first, {"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    again = real.client.post("/v1/chat/completions", json={**CHAT, "messages": second}).json()
    spoken = answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    assert spoken - 2 <= again["timings"]["cached_tokens"] <= spoken


def test_text_of_many_bytes_comes_whole(real: Served):
    body = {
        "prompt": "日本語: こんにちは、世界。 Français: é è ê. Emoji: 😀 ",
        "max_tokens": 60,
        "temperature": 0,
    }
    events = real.events("/v1/completions", body)
    text = "".join(event["choices"][0]["text"] for event in events[:-1])
    assert text == real.client.post("/v1/completions", json=body).json()["choices"][0]["text"]


def test_as_many_run_at_a_time_as_the_batch_holds_and_the_rest_waits(real: Served):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(real.text, max_tokens=20) for _ in range(6)]
        wait_for(lambda: real.generator.load == (real.generator.serving.streams, 2))
        texts = {one.result() for one in asked}
    assert len(texts) == 1
