"""Two profiles at most: one for everyday, one under load; profiles are swapped without dropping a request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import StoreError
from profiles.vocabulary import WORKLOADS
from service.generator.launching import best_published, serving_of
from tests.support import sessions
from tests.support.flow import Flow
from tests.support.serving import CHAT, Served, events_of, serving
from tests.support.tiny import write_tiny_model
from tests.support.waiting import wait_for
from tuner.home import Home

LONG = {**CHAT, "max_tokens": 200, "ignore_eos": True, "stream": True}
ENDLESS = {**LONG, "max_tokens": 3000}


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Flow:
    """A store with the best profiles for one stream and for eight."""
    folder = tmp_path_factory.mktemp("pool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        made = Flow(Home(folder / "home"), write_tiny_model(folder / "tiny.gguf"))
        made.search()
        made.search(workload=WORKLOADS["batch"])
    return made


@pytest.fixture
def pooled(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service with a second worker under load, whose steps take real time."""
    monkeypatch.setattr("service.swapping.FOLLOW_S", 0.05)
    sessions.serve_with(monkeypatch, sessions.Told)
    with serving(flow.home, engine="simulated", load_workload="batch") as served:
        wait_for(lambda: state(served)["load_profile"])
        yield served


def state(served: Served) -> dict[str, Any]:
    return dict(served.client.get("/readyz").json()["generator"])


def answered_by(served: Served) -> str:
    """The profile that answers a short request now."""
    return str(served.client.post("/v1/chat/completions", json=CHAT).json()["timings"]["profile"])


def ids(flow: Flow) -> dict[str, str]:
    """The best profile's id by workload."""
    with flow.store() as store:
        return {record.workload.name: record.id for record in reversed(store.profiles())}


def test_new_requests_go_to_the_profile_for_many_under_load_and_back_after_it(pooled: Served, flow: Flow):
    known = ids(flow)
    assert answered_by(pooled) == known["chat"]
    with pooled.client.stream("POST", "/v1/chat/completions", json=LONG) as response:
        first = events_of(response)
        next(first)
        assert answered_by(pooled) == known["batch"]
        *_rest, last, done = first
    assert (last["timings"]["profile"], done) == (known["chat"], "[DONE]")
    assert last["choices"][0]["finish_reason"] == "length"
    assert answered_by(pooled) == known["chat"]


def test_two_that_compute_share_the_cpus(pooled: Served):
    generator = pooled.generator
    own, half = (
        dict(settings)["n_threads"]
        for settings in (generator.serving.run_settings, generator.serving.shared_settings)
    )
    log = pooled.state.home.logs / "generator.log"
    log.write_text("")
    with pooled.client.stream("POST", "/v1/chat/completions", json=LONG) as response:
        first = events_of(response)
        next(first)
        answered_by(pooled)
        wait_for(lambda: len(re.findall("n_threads", log.read_text())) >= 2)
        list(first)
    assert log.read_text().split() == [f"n_threads={half}", f"n_threads={own}"]


def test_a_swap_drops_nothing(pooled: Served, flow: Flow):
    known = ids(flow)
    before = pooled.generator.worker_pid
    with pooled.client.stream("POST", "/v1/chat/completions", json=LONG) as response:
        running = events_of(response)
        next(running)
        swapped = pooled.client.post("/v1/generator/profile", json={"profile": known["batch"]})
        assert swapped.status_code == 200, swapped.text
        assert swapped.json()["profile"] == known["batch"]
        assert len(pooled.state.running().generators) == 2
        assert answered_by(pooled) == known["batch"]
        *_rest, last, done = running
    assert (last["timings"]["profile"], done) == (known["chat"], "[DONE]")
    assert pooled.client.get("/v1/generator").json()["profile"] == known["batch"]
    wait_for(lambda: all(one.worker_pid != before for one in pooled.state.running().generators))


def test_what_waits_goes_over_to_the_new_profile(flow: Flow, monkeypatch: pytest.MonkeyPatch):
    sessions.serve_with(monkeypatch, sessions.Slow)
    known = ids(flow)
    with serving(flow.home, engine="simulated", parallel=1) as served, ThreadPoolExecutor(3) as pool:
        with served.client.stream("POST", "/v1/chat/completions", json=ENDLESS) as response:
            running = events_of(response)
            next(running)
            waiting = [pool.submit(answered_by, served) for _ in range(2)]
            wait_for(lambda: state(served)["waiting"] == 2)
            served.client.post("/v1/generator/profile", json={"profile": known["batch"]})
            assert [one.result() for one in waiting] == [known["batch"]] * 2
        wait_for(lambda: len(served.state.running().generators) == 1)


def test_a_newly_published_best_profile_is_served(flow: Flow, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("service.swapping.FOLLOW_S", 0.05)
    with serving(flow.home, engine="simulated") as served:
        with flow.store() as store:
            newer = store.publish(store.profile(ids(flow)["chat"])).id
        wait_for(lambda: state(served)["profile"] == newer)
        assert answered_by(served) == newer


def test_a_store_that_can_not_be_read_for_a_moment_is_followed_afterwards(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("service.swapping.FOLLOW_S", 0.05)
    asked: list[object] = []

    def locked_at_first(*arguments: Any) -> Any:
        asked.append(arguments)
        if len(asked) <= 3:
            raise StoreError("the store is locked")
        return best_published(*arguments)

    monkeypatch.setattr("service.swapping.best_published", locked_at_first)
    with serving(flow.home, engine="simulated") as served:
        with flow.store() as store:
            newer = store.publish(store.profile(ids(flow)["chat"])).id
        wait_for(lambda: state(served)["profile"] == newer)
    assert caplog.text.count("the store is locked") == 1


def test_what_is_published_for_load_later_on_is_run_beside(flow: Flow, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("service.swapping.FOLLOW_S", 0.05)
    with serving(flow.home, engine="simulated", load_workload="writer") as served:
        main = state(served)["profile"]
        assert state(served)["load_profile"] is None
        for _ in range(2):
            with flow.store() as store:
                made = replace(store.profile(ids(flow)["chat"]), workload=WORKLOADS["writer"])
                published = store.publish(made).id
            wait_for(lambda wanted=published: state(served)["load_profile"] == wanted)
        wait_for(lambda: len(served.state.running().generators) == 2)
        assert state(served)["profile"] == main


def test_a_profile_that_is_published_while_the_worker_loads_is_served(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.swapping.FOLLOW_S", 0.05)
    published: list[str] = []

    def meanwhile(*arguments: Any) -> Any:
        found = serving_of(*arguments)
        with flow.store() as store:
            published.append(store.publish(store.profile(ids(flow)["chat"])).id)
        return found

    monkeypatch.setattr("service.app.serving_of", meanwhile)
    with serving(flow.home, engine="simulated") as served:
        wait_for(lambda: state(served)["profile"] == published[0])


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"n_threads": 4096}, ("n_threads=4096", "the effective CPUs")),
        ({"type_v": "q8_0", "flash_attn": "off"}, ("type_v=q8_0", "flash_attn=on")),
        ({"n_ubatch": 0}, ("n_ubatch=0", "allowed is 1 to")),
    ],
)
def test_p18_e09_e14_a_profile_that_can_not_run_here_is_refused_by_its_settings(
    pooled: Served, flow: Flow, settings: dict[str, Any], parts: tuple[str, ...]
):
    with flow.store() as store:
        known = store.profile(ids(flow)["chat"])
        config = known.config.with_settings(**settings)
        wrong = store.publish(replace(known, workload=WORKLOADS["rag"], config=config)).id
    refused = pooled.client.post("/v1/generator/profile", json={"profile": wrong})
    assert refused.status_code == 422, refused.text
    for part in parts:
        assert part in refused.json()["error"]["message"]
    assert state(pooled)["profile"] != wrong


def test_a_worker_that_does_not_come_up_leaves_the_old_one_serving(pooled: Served, flow: Flow):
    known = ids(flow)

    def broken(*arguments: Any) -> Any:
        return replace(serving_of(*arguments), path=Path("/nowhere/model.gguf"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.swapping.serving_of", broken)
        refused = pooled.client.post("/v1/generator/profile", json={"profile": known["batch"]})
    assert refused.status_code == 503
    assert "did not start" in refused.json()["error"]["message"]
    assert answered_by(pooled) == known["chat"]
    # The one for load made room for it, and comes back.
    wait_for(lambda: state(pooled)["load_profile"] == known["batch"])


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [({"profile": "p-zzz"}, 404, "p-zzz"), ({"profile": 1}, 422, "string"), ({"other": 1}, 422, "other")],
)
def test_a_wrong_swap_is_refused(pooled: Served, body: dict[str, Any], status: int, part: str):
    response = pooled.client.post("/v1/generator/profile", json=body)
    assert response.status_code == status
    assert part in response.text
