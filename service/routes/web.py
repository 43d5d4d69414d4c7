"""The web page: its files, plotly's script, and the policy under which a browser runs them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from service.problems import RequestError

router = APIRouter(include_in_schema=False)

STATIC = Path(__file__).parent.parent / "static"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No string becomes HTML or a script's address: there is no policy of ours that could make one.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
NO_PLOTLY = "charts need plotly, which is not installed here: pip install 'cputune[plot]'"


@dataclass(frozen=True)
class _File:
    """A file of the page in memory: no request reaches the file system."""

    body: bytes
    headers: Mapping[str, str]
    media_type: str

    @classmethod
    def read(cls, path: Path) -> Self:
        body = path.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return cls(body, {**HEADERS, "ETag": tag}, _MEDIA_TYPES[path.suffix])


_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@cache
def _files() -> Mapping[str, _File]:
    return {path.name: _File.read(path) for path in STATIC.iterdir() if path.suffix in _MEDIA_TYPES}


@router.get("/")
async def page(request: Request) -> Response:
    """The page."""
    return _answer(request, "index.html")


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """A file of the page. A browser asks each time whether it has changed: an update must reach it whole."""
    return _answer(request, name)


@router.get("/plotly.js")
async def plotly(request: Request) -> Response:
    """Plotly's script as its Python package brings it; 404 says what to install."""
    script = plotly_script()
    if script is None:
        raise RequestError(404, NO_PLOTLY, "not_found_error", code="no_plotly")
    seen = script.stat()
    headers = {**HEADERS, "ETag": f'"{seen.st_mtime_ns:x}-{seen.st_size:x}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return FileResponse(script, headers=headers, media_type=_MEDIA_TYPES[".js"])


def plotly_script() -> Path | None:
    """Where plotly's script lies; None where plotly is not installed."""
    found = find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        return None
    script = Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return script if script.is_file() else None


def _answer(request: Request, name: str) -> Response:
    file = _files().get(name)
    if file is None:
        raise RequestError(404, f"the page has no file '{name[:100]}'", "not_found_error")
    if request.headers.get("if-none-match") == file.headers["ETag"]:
        return Response(status_code=304, headers=dict(file.headers))
    return Response(file.body, headers=dict(file.headers), media_type=file.media_type)
