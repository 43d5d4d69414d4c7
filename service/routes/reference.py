"""The endpoints as a page, made from the OpenAPI document: FastAPI's own loads scripts from another host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.routes.web import HEADERS

router = APIRouter(include_in_schema=False)

FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>cputune: endpoints</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/base.css"></head>
<body><header class="bar"><a class="mark" href="/">cputune</a></header><main><section><h1>Endpoints</h1>
<p class="quiet">Bodies and answers in full: <a href="/openapi.json">openapi.json</a></p></section>
{sections}</main></body></html>
"""


@router.get("/docs")
async def reference(request: Request) -> HTMLResponse:
    """Every endpoint with its parameters."""
    paths: Mapping[str, Mapping[str, Any]] = request.app.openapi()["paths"]
    sections = "\n".join(
        _section(method, path, operation)
        for path, operations in paths.items()
        for method, operation in operations.items()
    )
    return HTMLResponse(FRAME.format(sections=sections), headers=dict(HEADERS))


def _section(method: str, path: str, operation: Mapping[str, Any]) -> str:
    said = escape(operation.get("description") or operation.get("summary", ""))
    items = "".join(f"<li>{item}</li>" for item in _parameters(operation))
    listed = f"<ul>{items}</ul>" if items else ""
    heading = f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    return f"<section>{heading}<p>{said}</p>{listed}</section>"


def _parameters(operation: Mapping[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        wanted = " (required)" if parameter.get("required") else ""
        said = f": {parameter['description']}" if parameter.get("description") else ""
        yield f"<code>{escape(parameter['name'])}</code> in {escape(parameter['in'])}{wanted}{escape(said)}"
    for content in operation.get("requestBody", {}).get("content", {}).values():
        reference = content.get("schema", {}).get("$ref", "")
        if reference:
            yield f"a JSON body: <code>{escape(reference.rpartition('/')[2])}</code>"
