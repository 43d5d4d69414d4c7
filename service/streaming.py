"""Answers of the generator as HTTP responses: server-sent events, or one document."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from service.generator.requests import End, Stream
from service.problems import RequestError

KEEP_ALIVE_S = 10.0
"""A comment is sent when this long no token came, so that nobody in between closes the connection."""
KEEP_ALIVE = b": keep-alive\n\n"
LAST_S = 5.0
"""What a client gets to take the rest of an answer whose time is over."""
DONE = b"data: [DONE]\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True)
class Form:
    """How an answer is written: a chat's or a completion's, for one request."""

    model: str
    is_chat: bool
    include_usage: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def _head(self) -> dict[str, Any]:
        kind = "chat.completion" if self.is_chat else "text_completion"
        prefix = "chatcmpl-" if self.is_chat else "cmpl-"
        return {"id": prefix + self.id, "object": kind, "created": self.created, "model": self.model}

    def _event(self, choices: list[dict[str, Any]], **more: object) -> bytes:
        head = self._head
        if self.is_chat:
            head["object"] = "chat.completion.chunk"
        return _event({**head, "choices": choices, **more})

    def opening(self) -> bytes:
        """The first event of a chat: who speaks."""
        if not self.is_chat:
            return b""
        delta = {"role": "assistant", "content": ""}
        return self._event([{"index": 0, "delta": delta, "finish_reason": None}])

    def piece_parts(self) -> tuple[bytes, bytes]:
        """What stands before and after a piece's JSON text in its event; made once, used for each token."""
        mark = secrets.token_hex(8)
        if self.is_chat:
            event = self._event([{"index": 0, "delta": {"content": mark}, "finish_reason": None}])
        else:
            event = self._event([{"index": 0, "text": mark, "logprobs": None, "finish_reason": None}])
        before, _, after = event.partition(f'"{mark}"'.encode())
        return before, after

    def closing(self, end: End, timings: dict[str, Any]) -> bytes:
        """The last events: why it ended, how long it took, and the token counts where asked for."""
        nothing: dict[str, Any] = {"delta": {}} if self.is_chat else {"text": "", "logprobs": None}
        choice = {"index": 0, **nothing, "finish_reason": end.finish}
        events = self._event([choice], timings=timings)
        if self.include_usage:
            events += self._event([], usage=usage(end), timings=timings)
        return events

    def document(self, text: str, end: End, timings: dict[str, Any]) -> dict[str, Any]:
        """The whole answer as one document."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": end.finish}
        choice |= {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        return {**self._head, "choices": [choice], "usage": usage(end), "timings": timings}


def usage(end: End) -> dict[str, Any]:
    """Token counts in OpenAI's form."""
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": end.cached_tokens},
    }


def timings_of(stream: Stream, end: End) -> dict[str, Any]:
    """Times of a request in ms: waiting for its turn, then to the first token, then per token."""
    waited_s = (stream.started_s or stream.submitted_s) - stream.submitted_s
    return {
        "queue_ms": round(1000 * waited_s, 2),
        "ttft_ms": round(end.ttft_ms, 2),
        "tpot_ms": None if end.tpot_ms is None else round(end.tpot_ms, 3),
        "tokens_per_second": None if not end.tpot_ms else round(1000 / end.tpot_ms, 2),
        "cached_tokens": end.cached_tokens,
        "profile": stream.profile,
    }


class _Events:
    """A response of server-sent events; its head goes out with the first of them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.began = False

    async def write(self, data: bytes, *, more: bool = True) -> None:
        if not self.began:
            self.began = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


class Answer(Response):
    """A stream of the generator as a response; a client that goes away takes its sequence with it."""

    def __init__(
        self,
        stream: Stream,
        form: Form,
        *,
        as_events: bool,
        deadline_s: float,
        ended: Callable[[str, End | None], None],
    ) -> None:
        """`ended` is told the outcome: the finish, "cancelled" or "failed"."""
        super().__init__()
        self._stream = stream
        self._form = form
        self._as_events = as_events
        self._deadline_s = deadline_s
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer until it ends, its time is over, or nobody listens any more."""
        sending = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, timeout=self._deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() and not gone.done():
                # A client that reads nothing holds no place in the batch meanwhile.
                self._stream.cancel()
                self._stream.put(
                    RequestError(504, f"no end after {self._deadline_s:g} s", "timeout_error", code="timeout")
                )
                await asyncio.wait({sending, gone}, timeout=LAST_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Once the answer is sent, the server says of every client that it is gone.
            left = gone.done() and not sending.done()
            gone.cancel()
            sending.cancel()
            self._stream.cancel()
            (fault,) = await asyncio.gather(sending, return_exceptions=True)
            end = self._stream.end
            self._ended(end.finish if end else "cancelled" if left else "failed", end)
        if isinstance(fault, Exception):
            raise fault

    async def _send(self, send: Send) -> None:
        if self._as_events:
            await self._send_events(send)
        else:
            await self._send_document(send)

    async def _send_document(self, send: Send) -> None:
        try:
            text = "".join([piece async for piece in self._stream])
        except RequestError as error:
            await _send_whole(send, int(error.status), error.body(), error.headers())
            return
        end = self._end()
        await _send_whole(send, 200, self._form.document(text, end, timings_of(self._stream, end)), {})

    async def _send_events(self, send: Send) -> None:
        """A request that fails before anything was sent gets a status of its own; later, an error event."""
        events = _Events(send)
        opening = self._form.opening()
        before, after = self._form.piece_parts()
        try:
            while (piece := await self._next(events)) is not None:
                await events.write(opening + before + json.dumps(piece).encode() + after)
                opening = b""
            end = self._end()
            tail = opening + self._form.closing(end, timings_of(self._stream, end))
        except RequestError as error:
            if not events.began:
                await _send_whole(send, int(error.status), error.body(), error.headers())
                return
            tail = _event(error.body())
        await events.write(tail + DONE, more=False)

    async def _next(self, events: _Events) -> str | None:
        """The next piece, None at the end; keeps the connection alive until it comes.

        Not only a request's own prompt takes long: engines that compute one sequence at a time let all wait
        for another's.
        """
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    return await anext(self._stream, None)
            except TimeoutError:
                await events.write(KEEP_ALIVE)

    def _end(self) -> End:
        if self._stream.end is None:
            raise RuntimeError("the stream has not ended")
        return self._stream.end


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


async def _send_whole(send: Send, status: int, document: dict[str, Any], headers: dict[str, str]) -> None:
    response = JSONResponse(document, status, headers)
    await send({"type": "http.response.start", "status": status, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
