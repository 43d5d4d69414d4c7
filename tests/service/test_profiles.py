"""Published profiles and the tuning history over HTTP."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
import yaml

from profiles.documents import read_profile
from profiles.vocabulary import WORKLOADS, Config
from service.answers import Answers, StoredAnswer
from tests.support.flow import Flow
from tests.support.serving import Served, serving
from tests.support.tiny import write_tiny_model
from tuner.home import Home
from tuner.request import parse_limits


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Flow]]:
    """A service over a store in which one search has ended."""
    folder = tmp_path_factory.mktemp("searched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        flow = Flow(Home(folder / "home"), write_tiny_model(folder / "tiny.gguf"))
        flow.search(trials=4)
        with serving(flow.home, generator=False) as served:
            yield served, flow


def test_the_best_profile_has_a_tag_and_is_not_sent_twice(searched: tuple[Served, Flow]):
    served, flow = searched
    first = served.client.get("/v1/profiles/best")
    assert first.status_code == 200
    profile = read_profile(first.json(), "the answer")
    assert profile.config.engine == "simulated"
    again = served.client.get("/v1/profiles/best", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = served.client.get("/v1/profiles/best", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200
    del flow


def test_a_change_in_the_store_is_seen(searched: tuple[Served, Flow]):
    served, flow = searched
    before = served.client.get("/v1/profiles/best").json()
    with flow.store() as store:
        published = store.profiles()[0]
        store.publish(store.profile(published.id))
    after = served.client.get("/v1/profiles/best").json()
    assert before["id"] != after["id"]


def test_a_question_without_an_answer_says_why_and_what_to_run(searched: tuple[Served, Flow]):
    served, _flow = searched
    response = served.client.get("/v1/profiles/best", params={"workload": "rag"})
    assert response.status_code == 404
    message = response.json()["error"]["message"]
    assert "nothing is published" in message
    assert "there is chat at near-lossless" in message
    assert "cputune search --model tiny --workload rag" in message


@pytest.mark.parametrize(
    ("query", "status", "part"),
    [
        ({"workload": "chatt"}, 422, "did you mean chat"),
        ({"objective": "speed"}, 422, "unknown objective"),
        ({"quality": "best"}, 422, "allowed are near-lossless"),
        ({"format": "exe"}, 422, "llama-server"),
        ({"streams": "0"}, 422, "streams"),
        ({"model": "nothing"}, 404, "nothing"),
        ({"format": "llama-server"}, 422, "simulated"),
    ],
)
def test_a_wrong_question_is_told_what_is_allowed(
    searched: tuple[Served, Flow], query: dict[str, str], status: int, part: str
):
    response = searched[0].client.get("/v1/profiles/best", params=query)
    assert response.status_code == status, response.text
    assert part in response.json()["error"]["message"]


def test_a_profile_by_its_id_as_json_and_yaml(searched: tuple[Served, Flow]):
    served, _flow = searched
    (listed, *_rest) = served.client.get("/v1/profiles").json()["profiles"]
    as_json = served.client.get(f"/v1/profiles/{listed['id']}").json()
    as_yaml = yaml.safe_load(served.client.get(f"/v1/profiles/{listed['id']}?format=yaml").text)
    assert as_json["id"] == as_yaml["id"] == listed["id"]
    assert served.client.get("/v1/profiles/p-nothing").status_code == 404


def test_a_question_makes_no_variant(searched: tuple[Served, Flow]):
    served, flow = searched
    with flow.store() as store:
        found = store.profile(store.profiles()[0].id)
        made = store.publish(replace(found, config=Config("simulated", "bf16", found.config.settings)))
    shutil.rmtree(flow.home.variants)
    response = served.client.get(f"/v1/profiles/{made.id}", params={"format": "llama-server"})
    assert response.status_code == 404
    assert "cputune models prepare tiny --variants bf16" in response.json()["error"]["message"]
    assert not list(flow.home.variants.rglob("*.gguf"))


def test_history_is_listed_paged_and_filtered(searched: tuple[Served, Flow]):
    served, flow = searched
    (study,) = served.client.get("/v1/studies").json()["studies"]
    assert study["id"] == flow.study().id
    assert served.client.get("/v1/studies", params={"offset": 1}).json()["studies"] == []
    right = {"model": "tiny", "machine": study["machine"], "workload": "chat", "status": study["status"]}
    wrong = {"machine": "another", "workload": "rag", "status": "failed"}
    (published, *_older) = served.client.get("/v1/profiles").json()["profiles"]
    for path, kept, one in (("studies", right, study), ("profiles", right, published)):
        filters = {name: value for name, value in kept.items() if name != "status" or path == "studies"}
        found = served.client.get(f"/v1/{path}", params=filters).json()[path]
        assert found[0]["id"] == one["id"]
        for name in set(filters) & set(wrong):
            assert served.client.get(f"/v1/{path}", params={name: wrong[name]}).json()[path] == [], name
    odd = served.client.get("/v1/studies", params={"status": "odd"})
    assert odd.status_code == 422
    assert study["status"] in odd.json()["error"]["message"]
    full = served.client.get(f"/v1/studies/{study['id']}").json()
    assert full["result"]["status"] == study["status"]
    trials = served.client.get(f"/v1/studies/{study['id']}/trials", params={"limit": 2}).json()["trials"]
    assert [trial["number"] for trial in trials] == [0, 1]
    complete = served.client.get(f"/v1/studies/{study['id']}/trials", params={"status": "complete"}).json()
    assert {trial["status"] for trial in complete["trials"]} == {"complete"}
    (first, *_more) = served.client.get(f"/v1/studies/{study['id']}/samples").json()["samples"]
    assert first["rounds"][0]["ttft_ms"][0] > 0
    wrong = served.client.get(f"/v1/studies/{study['id']}/trials", params={"status": "odd"})
    assert wrong.status_code == 422
    assert "complete" in wrong.json()["error"]["message"]


def test_the_machine_is_the_probe(searched: tuple[Served, Flow]):
    served, _flow = searched
    assert served.client.get("/v1/machine").json() == json.loads(json.dumps(served.state.machine.to_json()))


def test_without_a_generator_a_chat_is_answered_with_the_reason(searched: tuple[Served, Flow]):
    response = searched[0].client.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}
    )
    assert response.status_code == 503
    assert "--no-generator" in response.json()["error"]["message"]


def test_an_unknown_path_has_an_error_of_the_same_form(searched: tuple[Served, Flow]):
    response = searched[0].client.get("/v1/nowhere")
    assert response.status_code == 404
    assert "/v1/nowhere" in response.json()["error"]["message"]


def test_d04_many_readers_beside_a_writer_meet_no_error(searched: tuple[Served, Flow]):
    from concurrent.futures import ThreadPoolExecutor

    served, flow = searched
    (study,) = served.client.get("/v1/studies").json()["studies"]
    paths = ("/v1/profiles", "/v1/studies", f"/v1/studies/{study['id']}/samples", "/v1/profiles/best")
    with flow.store() as store, ThreadPoolExecutor(50) as pool:
        readers = [pool.submit(served.client.get, paths[number % len(paths)]) for number in range(200)]
        newest = store.profiles()[0]
        while not all(reader.done() for reader in readers):
            store.publish(store.profile(newest.id))
    assert {reader.result().status_code for reader in readers} == {200}


def test_s07_a_search_without_an_answer_is_no_answer(searched: tuple[Served, Flow]):
    served, flow = searched
    none = flow.search(workload=WORKLOADS["writer"], limits=parse_limits(["peak_rss_mib<=0.001"]))
    assert (none["status"], none["best"]) == ("infeasible", None)
    response = served.client.get("/v1/profiles/best", params={"workload": "writer"})
    assert response.status_code == 404
    assert "found nothing feasible" in response.json()["error"]["message"]
    assert "infeasible" in response.json()["error"]["message"]


@pytest.mark.parametrize("style", ["yaml", "json"])
def test_the_best_is_written_in_every_form_that_runs_its_engine(searched: tuple[Served, Flow], style: str):
    served, _flow = searched
    best = served.client.get("/v1/profiles/best", params={"format": style})
    assert best.headers["content-type"].startswith({"yaml": "text/yaml", "json": "application/json"}[style])
    assert yaml.safe_load(best.text)["config"]["engine"] == "simulated"


def test_equal_questions_at_a_time_are_answered_once(searched: tuple[Served, Flow]):
    import asyncio
    import threading

    made: list[int] = []
    ready = threading.Event()

    def make() -> tuple[bytes, str]:
        ready.wait(5.0)
        made.append(1)
        return b"{}", "application/json"

    async def ask() -> list[str]:
        answers = Answers(searched[0].state.store)
        asked = [asyncio.create_task(answers.get("question", make)) for _ in range(20)]
        await asyncio.sleep(0)
        asked[0].cancel()
        ready.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        return [one.etag for one in found if isinstance(one, StoredAnswer)]

    tags = asyncio.run(ask())
    assert (len(tags), len(set(tags)), len(made)) == (19, 1, 1)
