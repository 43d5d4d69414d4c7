"""What a request must fulfil before the application sees it: host, origin, token, body."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import RequestError
from service.settings import LOOPBACK

OPEN_PATHS = frozenset({"/healthz", "/", "/plotly.js"})
"""Answered without a token, as is all below `OPEN_FOLDER`: the page itself, which asks for the token."""
OPEN_FOLDER = "/static/"
BODY_S = 30.0
"""In which a body must have come."""


class Guard:
    """ASGI middleware. Refusals have the same form as the application's errors."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str],
        token: str | None,
        body_bytes: int,
    ) -> None:
        """`hosts` are names that a Host header may carry besides loopback's; a page of our own has an Origin
        that equals the Host, pages of others may not call."""
        self._app = app
        self._hosts = {host.lower() for host in hosts} | LOOPBACK
        self._token = token
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request with an error, or hand it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except RequestError as error:
            await refuse(error, send)
            return
        body = _Body(receive, send, self._body_bytes)
        await self._app(scope, body.receive, body.send)

    def _check(self, scope: Scope) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if host_name(host) not in self._hosts:
            raise RequestError(
                421,
                f"host '{host[:100]}' is not served here: the setting allowed_hosts adds names",
                "forbidden_error",
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            raise RequestError(403, f"origin '{origin[:100]}' may not call this service", "forbidden_error")
        path = scope["path"]
        is_open = path in OPEN_PATHS or path.startswith(OPEN_FOLDER)
        if self._token is not None and not is_open:
            self._authenticate(headers.get("authorization", ""))
        if scope["method"] in ("POST", "PUT", "PATCH"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise RequestError(
                    415, f"content type '{kind[:100]}': allowed is application/json", param="content-type"
                )
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._body_bytes:
            raise too_large(self._body_bytes)

    def _authenticate(self, given: str) -> None:
        scheme, _, token = given.partition(" ")
        wanted = (self._token or "").encode()
        if not hmac.compare_digest(token.strip().encode(), wanted) or scheme.lower() != "bearer":
            raise RequestError(
                401, "a token is needed: send Authorization: Bearer TOKEN", "authentication_error"
            )


class _Body:
    """Counts the bytes of a request's body, also where no length was declared, and the time that it takes.

    The application is cut off from a body that is too large or too slow, and its answer to that is replaced
    by ours.
    """

    def __init__(self, receive: Receive, send: Send, limit: int) -> None:
        self._receive = receive
        self._send = send
        self._left = limit
        self._limit = limit
        self._ends_s = asyncio.get_running_loop().time() + BODY_S
        self._is_whole = False
        self._refusal: RequestError | None = None
        self._is_refused = False

    async def receive(self) -> Message:
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._ends_s):
                message = await self._receive()
        except TimeoutError:
            self._refusal = RequestError(
                408, f"the body did not come within {BODY_S:g} s", code="body_too_slow"
            )
        else:
            self._left -= len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._left >= 0:
                return message
            self._refusal = too_large(self._limit)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._refusal is None:
            await self._send(message)
        elif not self._is_refused:
            self._is_refused = True
            await refuse(self._refusal, self._send)


def too_large(limit: int) -> RequestError:
    """The refusal of a body above the limit, in bytes."""
    return RequestError(413, f"the body is too large: allowed are {limit} bytes", code="body_too_large")


def host_name(host: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if ":" in name else name


async def refuse(error: RequestError, send: Send) -> None:
    """Send an error as the whole answer."""
    body = json.dumps(error.body()).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers()}
    await send(
        {
            "type": "http.response.start",
            "status": int(error.status),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})
