"""The service's worker on the real session and the whole demo model: what was tuned is what is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from service.generator.worker import Worker
from tuner.engines.openvino.session import OpenVinoSession

pytestmark = pytest.mark.real

EXACT = {"inference_num_threads": 1, "inference_precision_hint": "f32", "kv_cache_precision": "f32",
         "dynamic_quantization_group_size": 0}  # fmt: skip

Ask = Callable[[Sequence[str], int], list[tuple[str, str]]]


@pytest.fixture(scope="module", params=["sdpa", "paged"])
def ask(request: pytest.FixtureRequest, demo_folder: Path) -> Iterator[Ask]:
    """Asks questions side by side; each answer's text, and how it ended."""
    said: list[Mapping[str, Any]] = []
    session = OpenVinoSession()
    worker = Worker(session, said.append)
    worker.open(
        {
            "path": str(demo_folder),
            "load_settings": {**EXACT, "attention_backend": request.param},
            "run_settings": {},
            "context_tokens": 256,
            "streams": 2,
        }
    )
    assert said[-1]["event"] == "ready"

    def answers(questions: Sequence[str], max_tokens: int) -> list[tuple[str, str]]:
        said.clear()
        for key, question in enumerate(questions):
            messages = [{"role": "user", "content": question}]
            options = {"max_tokens": max_tokens, "sampling": {"temperature": 0.0}}
            worker.add({"key": key, "messages": messages, **options})
        while not worker.is_idle:
            worker.step()
        texts = [""] * len(questions)
        for message in said:
            for key, piece in message.get("pieces", ()):
                texts[key] += piece
        finishes = {message["key"]: message["finish"] for message in said if message["event"] == "end"}
        return [(text, finishes[key]) for key, text in enumerate(texts)]

    yield answers
    session.close()


def test_the_service_answers_two_at_once(ask: Ask) -> None:
    (france, one), (japan, two) = ask([f"What is the capital of {word}?" for word in ("France", "Japan")], 12)
    assert "Paris" in france
    assert "Tokyo" in japan
    assert {one, two} <= {"stop", "length"}


def test_an_answer_ends_at_the_model_s_own_end(ask: Ask) -> None:
    """Whose text is no part of the answer."""
    ((text, finish),) = ask(["Say yes."], 100)
    assert finish == "stop"
    assert text
    assert "<|" not in text
