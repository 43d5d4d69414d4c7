"""A service of the test's own on a free port, in a thread of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from service.app import create_app
from service.generator.generator import Generator
from service.server import Server, listening
from service.settings import settings_from
from service.state import ServiceState
from tuner.home import Home

START_S = 30.0
CHAT = {"messages": [{"role": "user", "content": "Say hello"}], "max_tokens": 8, "temperature": 0}


@dataclass
class Served:
    """A running service; `client` speaks to it."""

    client: httpx.Client
    state: ServiceState
    server: Server

    @property
    def generator(self) -> Generator:
        """Its generator; AssertionError where there is none."""
        assert self.state.generator is not None, self.state.no_generator
        return self.state.generator

    def events(self, path: str, body: dict[str, Any], **options: Any) -> list[Any]:
        """The events of a streamed answer: documents, and the text "[DONE]"."""
        with self.client.stream("POST", path, json={**body, "stream": True}, **options) as response:
            assert response.status_code == 200, response.read()
            return list(events_of(response))

    def text(self, **changes: Any) -> str:
        """What a chat answers."""
        response = self.client.post("/v1/chat/completions", json={**CHAT, **changes})
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["message"]["content"])


def events_of(response: httpx.Response) -> Iterator[Any]:
    """The documents of a stream of server-sent events as they come."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)


@contextmanager
def serving(home: Home, **settings: Any) -> Iterator[Served]:
    """Start a service, wait until its generator has come to a state, and end it afterwards."""
    app = create_app(settings_from(port=0, **settings), home)
    server = Server(app)
    listener = listening("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listener],), name="service", daemon=True)
    thread.start()
    try:
        _wait_for_start(server, thread)
        address = "http://{}:{}".format(*listener.getsockname()[:2])
        with httpx.Client(base_url=address, timeout=START_S) as client:
            _wait(client, app.state.service)
            yield Served(client, app.state.service, server)
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
        assert not thread.is_alive(), "the service does not end"


def _wait_for_start(server: Server, thread: threading.Thread) -> None:
    pause = threading.Event()
    while not server.started:
        assert thread.is_alive(), "the service ended while it started"
        pause.wait(0.01)


def _wait(client: httpx.Client, state: ServiceState) -> None:
    """Until the generator runs, or is known not to."""
    pause = threading.Event()
    while client.get("/readyz", headers=_token(state)).status_code != 200:
        if state.no_generator or (state.generator and state.generator.state in ("failed", "closed")):
            return
        pause.wait(0.02)


def _token(state: ServiceState) -> dict[str, str]:
    secret = state.settings.secret()
    return {} if secret is None else {"Authorization": f"Bearer {secret}"}
