"""The service's worker on the real session: what was tuned is what is served."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.generator.worker import Worker
from tuner.engines.openvino.session import OpenVinoSession

pytestmark = pytest.mark.real


def test_the_service_answers_two_at_once(demo_folder: Path) -> None:
    said: list[Mapping[str, Any]] = []
    worker = Worker(OpenVinoSession(), said.append)
    worker.open(
        {
            "path": str(demo_folder),
            "load_settings": {"attention_backend": "paged", "inference_num_threads": 1},
            "run_settings": {},
            "context_tokens": 256,
            "streams": 2,
        }
    )
    assert said[-1]["event"] == "ready"
    for key, word in enumerate(("France", "Japan")):
        messages = [{"role": "user", "content": f"What is the capital of {word}?"}]
        worker.add({"key": key, "messages": messages, "max_tokens": 12, "sampling": {"temperature": 0.0}})
    while not worker.is_idle:
        worker.step()
    texts = ["", ""]
    for message in said:
        for key, piece in message.get("pieces", ()):
            texts[key] += piece
    assert ["Paris" in texts[0], "Tokyo" in texts[1]] == [True, True], texts
    ends = [message for message in said if message["event"] == "end"]
    assert {end["key"] for end in ends} == {0, 1}
