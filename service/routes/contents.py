"""Contents of answers besides JSON, as the OpenAPI document tells them."""

from __future__ import annotations

from typing import Any

_TEXT: dict[str, Any] = {"schema": {"type": "string"}}

TEXTS: dict[str, Any] = {"text/plain": _TEXT, "text/yaml": _TEXT}
"""What `format` other than json gives."""

_EVENT: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("data", "event", "id")},
    "required": ["data"],
}

EVENTS: dict[str, Any] = {"text/event-stream": {"schema": _EVENT}}
"""Server-sent events; the schema is that of one event, whose data is JSON or the word [DONE]."""

METRICS: dict[str, Any] = {"text/plain": _TEXT}
"""Prometheus' own format."""
