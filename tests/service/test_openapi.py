"""Requests made up from the OpenAPI document: every answer is one that the document knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.flow import Flow
from tests.support.serving import Served, serving
from tests.support.tiny import write_tiny_model
from tuner.home import Home

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
EXAMPLES = 15


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a published profile that runs it."""
    folder = tmp_path_factory.mktemp("openapi")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        flow = Flow(Home(folder / "home"), write_tiny_model(folder / "tiny.gguf"))
        flow.search()
        with serving(flow.home, engine="simulated", context_tokens=256, follow=False) as served:
            yield served


def test_no_fault_and_no_answer_beside_the_document(known: Served):
    document = schemathesis.openapi.from_url(f"{known.client.base_url}/openapi.json")
    # These start processes, which takes its time: they have tests of their own.
    document = document.exclude(path="/v1/searches", method="POST").exclude(path="/v1/generator/profile")
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) > 15
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        def holds(case: Any) -> None:
            case.call_and_validate(checks=list(CHECKS), timeout=20)

        holds()


def test_a_search_is_asked_for_by_the_document_too(known: Served):
    document = known.client.get("/openapi.json").json()
    body = document["components"]["schemas"]["SearchBody"]
    assert body["additionalProperties"] is False
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answers = operation["responses"]
            assert {"4XX", "5XX"} <= set(answers), (method, path)
            assert any(code.startswith("2") for code in answers)
            for code, answer in answers.items():
                # What only our own page reads is described by the page.
                if operation["tags"] != ["page"]:
                    for content in answer.get("content", {}).values():
                        assert content["schema"], (method, path, code)
