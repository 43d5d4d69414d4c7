"""The official client, as its users call it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.serving import Served

openai = pytest.importorskip("openai")


@pytest.fixture
def client(simulated: Served) -> Iterator[object]:
    with openai.OpenAI(base_url=f"{simulated.client.base_url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_chat_whole_and_streamed(client):
    asked = {
        "model": "default",
        "messages": [{"role": "user", "content": "Say hello"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    ) as stream:
        events = list(stream)
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == whole.choices[0].message.content != ""
    assert events[-1].usage.total_tokens == whole.usage.total_tokens
    assert whole.usage.completion_tokens == 8


def test_completions(client):
    made = client.completions.create(model="default", prompt="abc", max_tokens=5, temperature=0)
    assert made.usage.completion_tokens <= 5
    assert made.choices[0].finish_reason in ("length", "stop")


def test_errors_are_the_client_s_own(client):
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.completions.create(model="gpt-4", prompt="abc")
    with pytest.raises(openai.BadRequestError, match="only 1 answer"):
        client.completions.create(model="default", prompt="abc", n=2)


def test_the_models(client):
    (model,) = client.models.list()
    assert model.owned_by == "cputune"
