"""Searches that are started, watched and cancelled over HTTP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.jobs import Job, Jobs, JobState
from service.problems import RequestError
from tests.support.serving import Served, events_of, serving
from tests.support.tiny import write_tiny_model
from tuner.home import Home
from tuner.measurement.lock import measuring_lock
from tuner.setup import add_model


@pytest.fixture
def idle(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service without a generator, with one registered model that only the simulated engine runs."""
    model = write_tiny_model(tmp_path / "tiny.gguf")
    with serving(Home(home), generator=False) as served:
        add_model(served.state.store, served.state.home, str(model), None)
        yield served


SEARCH = {"model": "tiny", "engines": ["simulated"], "budget": "10s"}


def test_a_search_is_watched_to_its_answer_from_any_point(idle: Served):
    started = idle.client.post("/v1/searches", json=SEARCH)
    assert started.status_code == 202, started.text
    path = f"/v1/searches/{started.json()['id']}"
    busy = idle.client.post("/v1/searches", json=SEARCH)
    assert busy.status_code == 409
    assert started.json()["id"] in busy.json()["error"]["message"]
    with idle.client.stream("GET", f"{path}/events") as response:
        events = list(events_of(response))
    assert {"note", "stage", "trial"} <= {event["event"] for event in events}
    assert events[-1] == {"event": "end", "state": "done", "error": None}
    with idle.client.stream("GET", f"{path}/events", headers={"Last-Event-ID": "1"}) as response:
        assert list(events_of(response)) == events[2:]
    done = idle.client.get(path).json()
    assert done["state"] == "done"
    assert done["result"]["best"]["profile_id"]
    assert idle.client.get("/v1/searches").json()["searches"][0]["id"] == done["id"]


def test_a_cancelled_search_keeps_what_it_finished(idle: Served):
    path = f"/v1/searches/{idle.client.post('/v1/searches', json={**SEARCH, 'budget': '60s'}).json()['id']}"
    with idle.client.stream("GET", f"{path}/events") as response:
        for event in events_of(response):
            if event["event"] == "trial":
                break
    assert idle.client.delete(path).json()["state"] == "cancelled"
    assert idle.client.get("/v1/studies").json()["studies"][0]["status"] == "interrupted"
    assert idle.client.post("/v1/searches", json=SEARCH).status_code == 202


@pytest.mark.parametrize(
    ("changes", "status", "part"),
    [
        ({"model": "/etc/passwd"}, 404, "not registered"),
        ({"model": "unknown"}, 404, "known are tiny"),
        ({"budget": "1s"}, 422, "allowed is from 10 s"),
        ({"workload": "chatt"}, 422, "did you mean chat"),
        ({"limits": ["speed<=1"]}, 422, "unknown metric"),
        ({"storage": "x"}, 422, "storage"),
    ],
)
def test_a_wrong_search_is_refused_before_it_starts(
    idle: Served, changes: dict[str, object], status: int, part: str
):
    response = idle.client.post("/v1/searches", json={**SEARCH, **changes})
    assert response.status_code == status, response.text
    assert part in response.json()["error"]["message"]
    assert idle.state.jobs.running is None


def test_a_search_that_fails_says_why(idle: Served):
    model = idle.state.store.model("tiny")
    Path(model.source).unlink()
    started = idle.client.post("/v1/searches", json=SEARCH).json()
    with idle.client.stream("GET", f"/v1/searches/{started['id']}/events") as response:
        last = list(events_of(response))[-1]
    assert last["state"] == "failed"
    assert "tiny.gguf" in last["error"]


def test_an_unknown_search_is_not_found(idle: Served):
    assert idle.client.get("/v1/searches/none").status_code == 404
    assert idle.client.delete("/v1/searches/none").status_code == 404


def test_m02_a_model_file_that_is_none_any_more_is_told_by_what_it_is(idle: Served):
    model = idle.state.store.model("tiny")
    Path(model.source).write_text("<!doctype html><title>Not found</title>")
    started = idle.client.post("/v1/searches", json=SEARCH).json()
    with idle.client.stream("GET", f"/v1/searches/{started['id']}/events") as response:
        last = list(events_of(response))[-1]
    assert last["state"] == "failed"
    assert "HTML" in last["error"]


def test_s08_beside_a_search_from_elsewhere_it_is_told_who_measures(idle: Served):
    with measuring_lock(idle.state.home.lock):
        started = idle.client.post("/v1/searches", json=SEARCH).json()
        with idle.client.stream("GET", f"/v1/searches/{started['id']}/events") as response:
            last = list(events_of(response))[-1]
    assert last["state"] == "failed"
    assert "another process measures" in last["error"]


STUBBORN = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: None)
print('{"event": "ready"}', file=sys.stderr, flush=True)
while True:
    signal.pause()
"""


def test_a_search_that_is_being_cancelled_still_runs_until_it_has_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.jobs.process.python_argv", lambda *_: [sys.executable, "-c", STUBBORN])

    async def live() -> tuple[Job, list[object]]:
        jobs = Jobs(Home(home), None)
        job = await jobs.start([])
        seen = []
        async for said in job.watch(0):
            seen.append(said)
            if len(seen) == 1:
                cancelling = asyncio.create_task(jobs.cancel(job, grace_s=0.3))
                await asyncio.sleep(0)
                # A request that comes meanwhile must not stop what is to end.
                jobs.give_way(True)
                assert not job.stopping.is_stopped
                with pytest.raises(RequestError, match=job.id):
                    await jobs.start([])
        await cancelling
        await jobs.close()
        return job, seen

    job, seen = asyncio.run(live())
    assert job.state is JobState.CANCELLED
    assert seen == [(0, {"event": "ready"}), (1, {"event": "end", "state": "cancelled", "error": None})]


def test_a_database_url_is_no_word_that_others_can_read(home: Path, monkeypatch: pytest.MonkeyPatch):
    url = "postgresql://somebody:secret@localhost/tuning"
    code = "import os, sys; print(sys.argv[1:], os.environ['CPUTUNE_STORAGE'], file=sys.stderr); sys.exit(2)"
    monkeypatch.setattr(
        "service.jobs.process.python_argv", lambda _, *words: [sys.executable, "-c", code, *words]
    )

    async def live() -> Job:
        jobs = Jobs(Home(home), url)
        job = await jobs.start(["--budget", "10s"])
        async for _ in job.watch(0):
            pass
        await jobs.close()
        return job

    error = asyncio.run(live()).error
    assert error == f"['search', '--budget', '10s', '--json', '--progress', 'json'] {url}"


def test_of_a_long_search_the_last_events_are_kept_with_their_places(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("service.jobs.KEPT_EVENTS", 3)

    async def live() -> list[object]:
        job = Job("x", (), datetime.now(UTC))
        for number in range(5):
            job.say({"number": number})
        silent = anext(job.watch(5, silence_s=0.01))
        assert await silent is None
        job.state = JobState.DONE
        job.stopping.close()
        return [said async for said in job.watch(0)]

    assert asyncio.run(live()) == [(number, {"number": number}) for number in (2, 3, 4)]


def test_a_search_without_news_keeps_its_connection_alive(idle: Served, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("service.routes.searches.KEEP_ALIVE_S", 0.01)
    path = f"/v1/searches/{idle.client.post('/v1/searches', json=SEARCH).json()['id']}"
    with idle.client.stream("GET", f"{path}/events") as response:
        assert ": keep-alive" in response.iter_lines()
    idle.client.delete(path)
