"""Streams in trouble: clients that leave, engines that fail or hang, full queues, slow prompts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.generator.generator import State
from service.generator.requests import End, Generation, Stream
from service.streaming import Answer, Form
from tests.support import sessions
from tests.support.serving import CHAT, Served, events_of, serving
from tests.support.tiny import write_tiny_model
from tests.support.waiting import wait_for
from tuner.home import Home

PATH = "/v1/chat/completions"
LONG = {**CHAT, "max_tokens": 2000, "ignore_eos": True, "stream": True}
SLOW_PROMPT = {**LONG, "messages": [{"role": "user", "content": "x" * 1600}], "max_tokens": 4}

MakeServed = Callable[..., Served]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose steps take real time."""
    with made(tmp_path_factory, sessions.Slow) as served:
        yield served


@contextmanager
def made(factory: pytest.TempPathFactory, session: type, **settings: Any) -> Iterator[Served]:
    """A service that runs this session; services that are started meanwhile run their own."""
    folder: Path = factory.mktemp("streams")
    model = str(write_tiny_model(folder / "tiny.gguf"))
    with pytest.MonkeyPatch.context() as patch:
        sessions.serve_with(patch, session)
        with serving(Home(folder), engine="simulated", model=model, **settings) as served:
            patch.undo()
            yield served


@contextmanager
def sent(served: Served, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A request on a raw socket, whose answer nobody has read."""
    content = json.dumps(body).encode()
    address = served.client.base_url
    with socket.create_connection((address.host, address.port or 80), timeout=10) as connection:
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        connection.sendall(head.encode() + content)
        yield connection


def test_g01_a_client_that_leaves_stops_its_answer_and_the_next_one_starts(slow: Served):
    with sent(slow, LONG) as connection:
        connection.recv(10)
        wait_for(lambda: slow.generator.load == (1, 0))
    left = time.monotonic()
    wait_for(lambda: slow.generator.load == (0, 0), 1.0)
    assert slow.text()
    assert time.monotonic() - left < 1.0
    assert "cputune_running_requests 0.0" in slow.client.get("/metrics").text


def test_g02_a_client_that_leaves_while_its_prompt_is_computed_stops_that(slow: Served):
    with sent(slow, SLOW_PROMPT):
        wait_for(lambda: slow.generator.load == (1, 0))
    left = time.monotonic()
    wait_for(lambda: slow.generator.load == (0, 0), 0.5)
    # The prompt would have taken a second more.
    assert slow.text()
    assert time.monotonic() - left < 0.8


def test_g03_what_the_queue_does_not_hold_is_refused_and_nobody_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory,
):
    with (
        made(tmp_path_factory, sessions.Slow, parallel=1, queue=1) as served,
        ThreadPoolExecutor(5) as pool,
    ):
        body = {**LONG, "stream": False, "max_tokens": 50}
        answers = list(pool.map(lambda _: served.client.post(PATH, json=body), range(5)))
        codes = sorted(answer.status_code for answer in answers)
        assert codes == [200, 200, 429, 429, 429]
        for answer in answers:
            if answer.status_code == 429:
                assert int(answer.headers["Retry-After"]) >= 1
                assert answer.json()["error"]["code"] == "queue_full"
            else:
                assert answer.json()["usage"]["completion_tokens"] == 50


def test_g04_a_hundred_requests_of_all_kinds_one_after_another(simulated: Served):
    for number in range(100):
        kind = number % 4
        if kind == 0:
            assert simulated.text()
        elif kind == 1:
            assert simulated.events(PATH, CHAT)[-1] == "[DONE]"
        elif kind == 2:
            with sent(simulated, LONG) as connection:
                connection.recv(1)
        else:
            assert simulated.client.post(PATH, json={**CHAT, "n": 3}).status_code == 400
    wait_for(lambda: simulated.generator.load == (0, 0))


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose engine fails after three tokens."""
    with made(tmp_path_factory, sessions.Failing) as served:
        yield served


def test_g05_g06_an_engine_that_fails_ends_the_stream_with_an_event_and_goes_on(failing: Served):
    began = time.monotonic()
    *_pieces, error, done = failing.events(PATH, LONG)
    assert time.monotonic() - began < 1.0
    assert done == "[DONE]"
    assert error["error"]["code"] == "engine_failed"
    assert "had enough" in error["error"]["message"]
    assert failing.text(max_tokens=2)
    assert failing.generator.restarts == 0


def test_g06_a_whole_answer_that_fails_has_a_status_of_its_own(failing: Served):
    response = failing.client.post(PATH, json={**LONG, "stream": False})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "engine_failed"


@pytest.mark.parametrize("changes", [{"n": 0}, {"messages": []}, {"temperature": "hot"}])
def test_g06_what_is_wrong_with_a_request_is_said_before_the_stream(
    simulated: Served, changes: dict[str, Any]
):
    response = simulated.client.post(PATH, json={**LONG, **changes})
    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == "application/json"


def test_g05_an_engine_that_hangs_is_ended_and_started_again(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.generator.keeper.STALLED_S", 0.5)
    with made(tmp_path_factory, sessions.Hanging) as served:
        *_pieces, error, done = served.events(PATH, LONG)
        assert (error["error"]["code"], done) == ("worker_failed", "[DONE]")
        assert served.text(max_tokens=2)
        assert served.generator.restarts == 1
        assert served.generator.state is State.READY


def test_g05_a_slow_batch_is_not_taken_for_a_hung_one_and_has_an_end_too(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.generator.keeper.STALLED_S", 0.6 * sessions.LABOUR_S)
    with made(tmp_path_factory, sessions.Laborious) as served:
        assert served.text()
        assert served.generator.restarts == 0
        monkeypatch.setattr("service.generator.keeper.SILENT_S", 0.2 * sessions.LABOUR_S)
        response = served.client.post(PATH, json=CHAT)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "worker_failed")


def test_it_is_ready_after_its_warm_up_only_and_what_comes_earlier_waits(
    tmp_path_factory: pytest.TempPathFactory,
):
    with made(tmp_path_factory, sessions.Cold) as served:
        began = time.monotonic()
        assert served.text()
        assert time.monotonic() - began < sessions.COLD_S / 2
        assert served.generator.worker_pid is not None
        os.kill(served.generator.worker_pid, signal.SIGKILL)
        wait_for(lambda: served.client.get("/readyz").status_code == 503)
        assert served.text()
        again = served.client.get("/readyz")
        assert (again.status_code, again.json()["generator"]["restarts"]) == (200, 1)


def test_a_worker_that_dies_over_a_prompt_takes_with_it_nobody_who_waits(
    tmp_path_factory: pytest.TempPathFactory,
):
    prompt = {**SLOW_PROMPT, "messages": [{"role": "user", "content": "x" * 3200}]}
    with made(tmp_path_factory, sessions.Slow, parallel=1) as served, ThreadPoolExecutor(2) as pool:
        first = pool.submit(served.client.post, PATH, json=prompt)
        wait_for(lambda: served.generator.load == (1, 0))
        second = pool.submit(served.text)
        wait_for(lambda: served.generator.load == (1, 1))
        assert served.generator.worker_pid is not None
        os.kill(served.generator.worker_pid, signal.SIGKILL)
        failed = first.result()
        # Nothing was sent yet: it has a status of its own, and may be tried again.
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "worker_failed")
        assert int(failed.headers["Retry-After"]) >= 1
        assert second.result()
        assert served.generator.restarts == 1


def test_no_more_run_at_a_time_than_pays(tmp_path_factory: pytest.TempPathFactory):
    body = {**CHAT, "max_tokens": 40, "ignore_eos": True}
    with made(tmp_path_factory, sessions.Crowded) as served, ThreadPoolExecutor(3) as pool:

        def together(count: int) -> list[Future[httpx.Response]]:
            return [pool.submit(served.client.post, PATH, json=body) for _ in range(count)]

        for count in (1, 2):
            assert {one.result().status_code for one in together(count)} == {200}
        assert served.client.get("/readyz").json()["generator"]["places"] == 1
        late = together(3)
        wait_for(lambda: served.generator.load == (1, 2))
        assert {one.result().status_code for one in late} == {200}


def test_m07_without_a_chat_template_chat_is_refused_and_completions_work(
    tmp_path_factory: pytest.TempPathFactory,
):
    with made(tmp_path_factory, sessions.Untemplated) as served:
        for stream in (False, True):
            response = served.client.post(PATH, json={**CHAT, "stream": stream})
            assert response.status_code == 400
            assert response.json()["error"]["code"] == "no_chat_template"
            assert "/v1/completions" in response.json()["error"]["message"]
        asked = {"prompt": "abc", "max_tokens": 3}
        assert served.client.post("/v1/completions", json=asked).status_code == 200


def test_g08_every_chunk_has_the_fields_that_clients_depend_on(simulated: Served):
    asked = {**CHAT, "ignore_eos": True, "stream_options": {"include_usage": True}}
    *chunks, usage, done = simulated.events(PATH, asked)
    assert done == "[DONE]"
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in [*chunks, usage]} == {
        (usage["id"], usage["created"], usage["model"])
    }
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == CHAT["max_tokens"]
    timings = chunks[-1]["timings"]
    assert timings["ttft_ms"] > 0
    assert timings["tokens_per_second"] == pytest.approx(1000 / timings["tpot_ms"], rel=0.01)
    assert timings["cached_tokens"] == usage["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [({"max_tokens": None}, None), ({"max_tokens": -1}, None), ({"max_tokens": 10**9}, None),
     ({"max_tokens": 3, "stop": None, "temperature": None, "top_p": None, "seed": None, "stream": None}, 3),
     ({"max_tokens": None, "max_completion_tokens": 4}, 4)],
)  # fmt: skip
def test_g10_null_is_absent_and_a_bound_beyond_the_context_is_the_context(
    simulated: Served, changes: dict[str, Any], tokens: int | None
):
    answer = simulated.client.post(PATH, json={**CHAT, "ignore_eos": True, **changes}).json()
    used = answer["usage"]
    whole = simulated.generator.serving.context_tokens
    assert (used["total_tokens"] == whole) if tokens is None else (used["completion_tokens"] == tokens)
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("tokens", [0, -2, 1.5, "many"])
def test_g10_a_bound_that_means_nothing_is_refused(simulated: Served, tokens: object):
    assert simulated.client.post(PATH, json={**CHAT, "max_tokens": tokens}).status_code == 422


def test_g12_a_slow_prompt_keeps_the_connection_alive_past_any_proxy(
    slow: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.streaming.KEEP_ALIVE_S", 0.05)
    with slow.client.stream("POST", PATH, json=SLOW_PROMPT) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in response.headers["cache-control"]
        assert response.headers["x-accel-buffering"] == "no"
        text = "".join(response.iter_text())
    assert text.startswith(": keep-alive\n\n")
    assert text.count(": keep-alive") >= 3
    assert text.endswith("data: [DONE]\n\n")


def test_g12_a_stream_that_waits_for_the_prompt_of_another_is_kept_alive_too(
    slow: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.streaming.KEEP_ALIVE_S", 0.05)
    with slow.client.stream("POST", PATH, json=LONG) as response:
        lines = response.iter_lines()
        next(line for line in lines if '"content"' in line)
        with sent(slow, SLOW_PROMPT):
            assert ": keep-alive" in lines


def test_s17_every_piece_is_sent_alone(slow: Served):
    with sent(slow, {**LONG, "max_tokens": 30}) as connection:
        reads = []
        while not reads or not reads[-1].endswith(b"0\r\n\r\n"):
            reads.append(connection.recv(1 << 16))
    assert max(read.count(b'"content"') for read in reads) <= 2
    assert sum(read.count(b'"content"') for read in reads) >= 30


def test_a_request_that_takes_too_long_is_ended(tmp_path_factory: pytest.TempPathFactory):
    with made(tmp_path_factory, sessions.Slow, request_timeout_s=0.3) as served:
        assert served.client.post(PATH, json={**LONG, "stream": False}).status_code == 504
        *_pieces, error, done = served.events(PATH, LONG)
        assert (error["error"]["code"], done) == ("timeout", "[DONE]")
        wait_for(lambda: served.generator.load == (0, 0))


def test_equal_requests_at_temperature_0_are_computed_once_where_that_is_asked_for(
    tmp_path_factory: pytest.TempPathFactory,
):
    with made(tmp_path_factory, sessions.Slow, deterministic_cache=2) as served:
        first, again = (served.client.post(PATH, json=CHAT).json() for _ in range(2))
        assert again["choices"] == first["choices"]
        assert again["timings"]["cached_tokens"] == first["usage"]["prompt_tokens"]
        assert again["timings"]["ttft_ms"] == 0
        streamed = served.events(PATH, {**CHAT, "seed": 5})
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in streamed[:-1])
        assert text == first["choices"][0]["message"]["content"]
        drawn = served.client.post(PATH, json={**CHAT, "temperature": 0.5}).json()
        assert drawn["timings"]["ttft_ms"] > 0
        for number in range(2):
            served.text(max_tokens=number + 1)
        assert served.client.post(PATH, json=CHAT).json()["timings"]["ttft_ms"] > 0, "it is bounded"


def test_what_other_weights_of_that_name_answered_is_no_answer(tmp_path_factory: pytest.TempPathFactory):
    with made(tmp_path_factory, sessions.Slow, deterministic_cache=2) as served:

        def ttft_ms() -> float:
            return float(served.client.post(PATH, json=CHAT).json()["timings"]["ttft_ms"])

        assert (ttft_ms() > 0, ttft_ms()) == (True, 0)
        name = served.generator.serving.model
        write_tiny_model(Path(served.state.store.model(name).source), weight=0.5)
        swapped = served.client.post("/v1/generator/profile", json={"profile": "default"})
        assert (swapped.status_code, swapped.json()["model"]) == (200, name)
        assert ttft_ms() > 0


def test_by_default_no_answer_is_kept(simulated: Served):
    for _ in range(2):
        assert simulated.client.post(PATH, json=CHAT).json()["timings"]["ttft_ms"] > 0


def test_a_listener_that_was_never_read_ends_with_its_client(slow: Served):
    with slow.client.stream("POST", PATH, json=LONG) as response:
        next(events_of(response))
    wait_for(lambda: slow.generator.load == (0, 0))


def counted(served: Served, outcome: str) -> float:
    """Requests that ended so."""
    text = served.client.get("/metrics").text
    found = re.search(rf'cputune_requests_total{{outcome="{outcome}"}} (\S+)', text)
    return float(found[1]) if found else 0.0


def test_answers_that_failed_and_clients_that_left_are_counted_apart(failing: Served, slow: Served):
    before = counted(failing, "failed")
    failing.events(PATH, LONG)
    assert failing.client.post(PATH, json={**LONG, "stream": False}).status_code == 500
    wait_for(lambda: counted(failing, "failed") == before + 2)
    assert counted(failing, "cancelled") == 0
    before = counted(slow, "cancelled")
    with sent(slow, LONG) as connection:
        connection.recv(10)
    wait_for(lambda: counted(slow, "cancelled") == before + 1)


def answer_of(stream: Stream, ended: list[str], **options: Any) -> Answer:
    def end(outcome: str, _: End | None) -> None:
        ended.append(outcome)

    return Answer(stream, Form("tiny", is_chat=True), as_events=True, ended=end, **options)


async def never(*_: object) -> Any:
    """A client that neither reads nor leaves."""
    await asyncio.Event().wait()


def test_a_client_that_reads_nothing_loses_its_place_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("service.streaming.LAST_S", 0.05)
    cancelled: list[str] = []
    ended: list[str] = []

    async def answer() -> None:
        stream = Stream(0, Generation(None, "x", None, {}), lambda: cancelled.append("cancelled"), 0.0)
        stream.put("text")
        async with asyncio.timeout(5):
            await answer_of(stream, ended, deadline_s=0.05)({}, never, never)

    asyncio.run(answer())
    assert cancelled
    assert ended == ["failed"]


def test_a_fault_of_our_own_while_an_answer_is_sent_is_not_swallowed():
    ended: list[str] = []

    async def answer() -> None:
        stream = Stream(0, Generation(None, "x", None, {}), lambda: None, 0.0)
        stream.put("text")

        async def broken(_: object) -> None:
            raise RuntimeError("a fault")

        await answer_of(stream, ended, deadline_s=5.0)({}, never, broken)

    with pytest.raises(RuntimeError, match="a fault"):
        asyncio.run(answer())
    assert ended == ["failed"]
