"""Errors of requests, and the one place where an error becomes an HTTP status."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from probes.errors import CputuneError, ProbeError
from profiles.errors import DocumentError, NotFoundError, StoreError
from tuner.errors import BusyError, EngineUnavailableError, ModelFileError, NothingFeasibleError, UsageError


@dataclass
class RequestError(CputuneError):
    """A request that is answered with an error: `{"error": {"message", "type", "param", "code"}}`."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after_s: int | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, object]:
        """The document that is sent."""
        param = None if self.param is None else _sendable(self.param)
        error = {"message": _sendable(self.message), "type": self.kind, "param": param, "code": self.code}
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """Retry-After where waiting helps; how to authenticate where that is missing."""
        found = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return found | ({"WWW-Authenticate": "Bearer"} if self.status == HTTPStatus.UNAUTHORIZED else {})


def _sendable(text: str) -> str:
    """A text that quotes a request may hold half of a surrogate pair, which no answer can."""
    return text.encode("utf-8", "replace").decode()


_STATUSES: tuple[tuple[type[CputuneError], int, str], ...] = (
    (UsageError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request_error"),
    (DocumentError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request_error"),
    (ProbeError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request_error"),
    (NotFoundError, HTTPStatus.NOT_FOUND, "not_found_error"),
    (NothingFeasibleError, HTTPStatus.NOT_FOUND, "not_found_error"),
    (BusyError, HTTPStatus.CONFLICT, "conflict_error"),
    (ModelFileError, HTTPStatus.BAD_REQUEST, "invalid_request_error"),
    (EngineUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable_error"),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable_error"),
)


def problem_of(error: CputuneError) -> RequestError:
    """An error of the library as the answer to a request."""
    if isinstance(error, RequestError):
        return error
    for kind, status, name in _STATUSES:
        if isinstance(error, kind):
            wait_s = 5 if status == HTTPStatus.SERVICE_UNAVAILABLE else None
            return RequestError(status, str(error), name, retry_after_s=wait_s)
    return RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), "server_error")
