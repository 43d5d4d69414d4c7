"""The generator on the real engine: clients that leave, workers that die, prompts of many kinds."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest

from service.generator.generator import State
from tests.support.serving import CHAT, Served, events_of, serving
from tests.support.sessions import on_one_thread
from tests.support.waiting import wait_for
from tuner import process
from tuner.home import Home

pytestmark = pytest.mark.real
LONG = {**CHAT, "max_tokens": 1500, "ignore_eos": True}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service on the demo model, on one thread: two that spin collapse beside a busy neighbour."""
    with pytest.MonkeyPatch.context() as patch:
        on_one_thread(patch)
        home = Home(tmp_path_factory.mktemp("real"))
        patch.setenv("CPUTUNE_LOCK", str(home.root / "measuring.lock"))
        with serving(home, engine="llama_cpp", context_tokens=2048) as served:
            yield served


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


def test_g02_a_prompt_that_nobody_waits_for_is_not_computed_to_its_end(real: Served):
    words = [f"word{number}" for number in range(450)]
    whole = {**CHAT, "messages": [{"role": "user", "content": " ".join(words)}], "max_tokens": 1}
    took_ms = real.client.post("/v1/chat/completions", json=whole).json()["timings"]["ttft_ms"]
    # As long, and nothing of it is in the cache.
    other = {**whole, "messages": [{"role": "user", "content": " ".join(words[::-1])}], "stream": True}
    body = json.dumps(other).encode()
    address = real.client.base_url
    with socket.create_connection((address.host, address.port or 80)) as connection:
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_for(lambda: real.generator.load == (1, 0))
    wait_for(lambda: real.generator.load == (0, 0), 1.0)
    began = time.monotonic()
    assert real.text(max_tokens=1)
    assert 1000 * (time.monotonic() - began) < max(0.7 * took_ms, 150)


def test_e03_an_idle_service_leaves_the_cpus_alone(real: Served):
    assert real.text()
    assert real.generator.worker_pid is not None
    worker = psutil.Process(real.generator.worker_pid)
    wait_for(lambda: worker.status() == "sleeping")
    before = sum(worker.cpu_times()[:2])
    threading.Event().wait(2.0)
    # A tick is 10 ms: this is 1.5 % of a core at most.
    assert sum(worker.cpu_times()[:2]) - before <= 0.03


def test_g15_distinct_prompts_do_not_make_it_grow(real: Served):
    assert real.generator.worker_pid is not None
    worker = psutil.Process(real.generator.worker_pid)
    sizes = []
    for number in range(40):
        real.text(messages=[{"role": "user", "content": f"{number} is my number. " * 5}], max_tokens=2)
        sizes.append(worker.memory_info().rss)
    assert sizes[-1] < 1.05 * sizes[9]


def test_s08_a_round_that_a_request_stopped_is_dropped_by_that_cause(
    real: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.jobs.QUIET_S", 0.05)
    # On one CPU the default has one thread: two that spin collapse beside a busy neighbour.
    pinned = ["taskset", "-c", str(max(os.sched_getaffinity(0)))]
    python_argv = process.python_argv
    monkeypatch.setattr(process, "python_argv", lambda *words: [*pinned, *python_argv(*words)])
    asked = {"engines": ["llama_cpp"], "budget": "60s"}
    path = f"/v1/searches/{real.client.post('/v1/searches', json=asked).json()['id']}"
    with real.client.stream("GET", f"{path}/events") as response:
        next(event for event in events_of(response) if event["event"] == "stage")

    job = real.state.jobs.job(path.rpartition("/")[2])

    def trials() -> list[dict[str, Any]]:
        return [event for event in tuple(job.events) if event["event"] == "trial"]

    def more_than(known: int) -> bool:
        return len(trials()) > known

    dropped = 0
    for _ in range(4):
        for _ in range(3):
            assert real.text(max_tokens=4)
            threading.Event().wait(0.3)
        # Then in peace: a trial that is stopped all the time does not end.
        wait_for(partial(more_than, len(trials())), 40.0)
        dropped = trials()[-1]["dropped"].get("stopped", 0)
        if dropped:
            break
    ended = real.client.delete(path).json()
    assert ended["stopped_s"] > 0
    assert dropped, ended
