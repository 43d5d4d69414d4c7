"""Advice over HTTP, for this machine and for others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.support.flow import Flow
from tests.support.serving import Served, serving
from tests.support.tiny import write_tiny_model
from tuner.cli.documents_advice import Recommend
from tuner.home import Home

PATH = "/v1/recommendations"


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service over a store in which one search has ended."""
    folder = tmp_path_factory.mktemp("advised")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        flow = Flow(Home(folder / "home"), write_tiny_model(folder / "tiny.gguf"))
        flow.search()
        with serving(flow.home, generator=False) as served:
            yield served


@pytest.fixture
def other(advised: Served) -> dict[str, Any]:
    """What another machine's `cputune probe --json` printed: this one with one CPU."""
    document = json.loads(json.dumps(advised.state.machine.to_json()))
    document["fingerprint"] = "another"
    document["effective"] |= {"cpus": [0], "cpu_count": 1, "cpu_quota": None, "limited_by": "affinity"}
    return dict(document)


def asked(served: Served, **body: Any) -> dict[str, Any]:
    # The simulated engine runs by name only: so it is recommended.
    response = served.client.post(PATH, json={"engines": ["simulated"], **body})
    assert response.status_code == 200, response.text
    jsonschema.validate(response.json(), Recommend.model_json_schema())
    return dict(response.json())


def test_this_machine_s_own_answer_is_exact(advised: Served):
    given = asked(advised)
    assert (given["basis"], given["distance"]) == ("exact", 0)
    assert given["profile"]["id"] == advised.client.get("/v1/profiles/best").json()["id"]


def test_p18_another_machine_gets_a_profile_that_its_cpus_can_run(advised: Served, other: dict[str, Any]):
    given = asked(advised, machine=other)
    assert given["basis"] == "similar"
    assert given["distance"] > 0
    assert any("another machine" in reason for reason in given["reasons"])
    settings = given["profile"]["config"]
    assert settings["n_threads"] == settings["n_threads_batch"] == 1
    assert given["machine"]["effective_cpus"] == 1


def test_another_question_says_how_far_it_is(advised: Served):
    given = asked(advised, workload="rag", output_tokens=100)
    assert given["basis"] == "same_machine"
    assert given["workload"]["output_tokens"] == 100
    assert given["distance"] > 0
    assert any("measured for chat" in reason for reason in given["reasons"])


@pytest.mark.parametrize(
    ("style", "part"),
    [("yaml", "engine: simulated"), ("json", '"engine": "simulated"'), ("env", "#")],
)
def test_it_is_written_as_exports_are(advised: Served, other: dict[str, Any], style: str, part: str):
    body = {"machine": other, "format": style, "engines": ["simulated"]}
    response = advised.client.post(PATH, json=body)
    assert response.status_code in (200, 422), response.text
    assert part in response.text or "simulated" in response.text


def test_a_llama_cpp_default_is_a_command_for_another_machine(advised: Served, other: dict[str, Any]):
    body = {"machine": other, "engines": ["llama_cpp"], "format": "llama-server"}
    text = advised.client.post(PATH, json=body).text
    assert "llama-server" in text
    assert "--threads 1" in text or "-t 1" in text
    assert "tiny.gguf" in text
    assert str(advised.state.home.root) not in text


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ({"machine": {}}, 422, "schema_version"),
        ({"machine": {"schema_version": 1}}, 422, "fingerprint"),
        ({"machine": {"schema_version": 99, "fingerprint": "x"}}, 422, "99"),
        (
            {"machine": {"schema_version": 1, "fingerprint": "x", "effective": {"cpu_count": "two"}}},
            422,
            "two",
        ),
        ({"machine": "this"}, 422, "machine"),
        ({"model": "/etc/passwd"}, 404, "/etc/passwd"),
        ({"workload": "chatt"}, 422, "did you mean chat"),
        ({"quality": "best"}, 422, "near-lossless"),
        ({"limits": ["speed<=1"]}, 422, "unknown metric"),
        ({"engines": ["nothing"]}, 422, "nothing"),
        ({"prompt_tokens": 0}, 422, "prompt_tokens"),
        ({"format": "exe"}, 422, "llama-server"),
        ({"storage": "x"}, 422, "storage"),
    ],
)
def test_a_wrong_question_is_told_what_is_allowed(
    advised: Served, body: dict[str, Any], status: int, part: str
):
    response = advised.client.post(PATH, json=body)
    assert response.status_code == status, response.text
    assert part in response.json()["error"]["message"]
