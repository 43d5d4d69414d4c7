"""A small OpenAI-compatible server on the loopback, with every fault on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Fake:
    """How the server behaves; `prompts` are those that it was asked to stream, `bodies` all requests.

    `tokens_per_word` and `overhead` decide what it counts in a prompt, `ends_after` how many tokens it makes
    at most when nothing keeps it going, `piece` how many of them come in one event.
    """

    models: tuple[str, ...] = ("m",)
    token: str | None = None
    tokens_per_word: float = 1.0
    overhead: int = 0
    ends_after: int | None = None
    knows_ignore_eos: bool = True
    refuses_extras: bool = False
    tells_usage: bool = True
    has_models: bool = True
    has_completions: bool = True
    streams: bool = True
    dies_after: int | None = None
    fails_after: int | None = None
    stops_short: bool = False
    hangs_after: int | None = None
    piece: int = 1
    token_s: float = 0.0
    prompts: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)

    def counted(self, prompt: str) -> int:
        """The tokens of a prompt."""
        return round(len(prompt.split()) * self.tokens_per_word) + self.overhead


@contextmanager
def serving(fake: Fake) -> Iterator[str]:
    """The base URL of the server while it runs."""
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        fake.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    fake: Fake
    protocol_version = "HTTP/1.1"
    # Else each small write would wait for the client's acknowledgement.
    wbufsize = 0
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        if self.path != "/v1/models" or not self.fake.has_models:
            self._json(404, {"error": {"message": "not found"}})
            return
        self._json(200, {"object": "list", "data": [{"id": name} for name in self.fake.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.fake.bodies.append(body)
        if not self._is_allowed():
            return
        is_chat = self.path == "/v1/chat/completions"
        if not is_chat and not self.fake.has_completions:
            self._json(404, {"error": {"message": "no such route"}})
            return
        if body["model"] not in self.fake.models:
            self._json(404, {"error": {"message": f"model '{body['model']}' not found"}})
            return
        if self.fake.refuses_extras and {"ignore_eos", "stream_options"} & set(body):
            self._json(422, {"detail": "extra fields not permitted"})
            return
        prompt = body["messages"][0]["content"] if is_chat else body["prompt"]
        count = body["max_tokens"]
        if self.fake.ends_after is not None and not (self.fake.knows_ignore_eos and body.get("ignore_eos")):
            count = min(count, self.fake.ends_after)
        usage = {"prompt_tokens": self.fake.counted(prompt), "completion_tokens": count}
        finish = "length" if count == body["max_tokens"] else "stop"
        if not body["stream"] or not self.fake.streams:
            document: dict[str, Any] = {"choices": [{"text": "a", "finish_reason": finish}]}
            self._json(200, document | ({"usage": usage} if self.fake.tells_usage else {}))
            return
        self.fake.prompts.append(prompt)
        self._stream(count, finish, usage, is_chat=is_chat)

    def _stream(self, count: int, finish: str, usage: dict[str, int], *, is_chat: bool) -> None:
        fake = self.fake
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if is_chat:
            self._event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for number in range(0, count, fake.piece):
            if number == fake.dies_after:
                self.close_connection = True
                self.connection.close()
                return
            if number == fake.hangs_after:
                fake.release.wait()
                self.close_connection = True
                return
            if number == fake.fails_after:
                self._event({"error": {"message": "out of memory"}})
                break
            if fake.token_s:
                time.sleep(fake.token_s)
            said = {"delta": {"content": " a"}} if is_chat else {"text": " a"}
            self._event({"choices": [{**said, "finish_reason": None}]})
        else:
            if not fake.stops_short:
                self._event({"choices": [{"delta": {}, "text": "", "finish_reason": finish}]})
                if fake.tells_usage and fake.bodies[-1].get("stream_options"):
                    self._event({"choices": [], "usage": usage})
                self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, document: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(document)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _is_allowed(self) -> bool:
        if self.fake.token is None or self.headers.get("Authorization") == f"Bearer {self.fake.token}":
            return True
        self._json(401, {"error": {"message": "invalid api key"}})
        return False

    def _json(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        pass
