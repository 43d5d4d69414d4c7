"""Progress of a search as JSON lines on stderr, for programs that watch one."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import TracebackType
from typing import Any, Self

from profiles.vocabulary import Config
from tuner.events import Event


class EventLines:
    """Takes the place of `Progress`: every event is one line, `{"event", "message", ...its values}`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def observe(self, event: Event) -> None:
        """Write one event; a reader that is gone is no reason to lose a search."""
        line = {"event": event.kind, "message": event.message, **plain(event.detail)}
        with suppress(OSError):
            sys.stderr.write(json.dumps(line) + "\n")
            sys.stderr.flush()


def plain(value: Any) -> Any:
    """A value of an event as JSON has it; numbers that JSON lacks become null."""
    if isinstance(value, Config):
        return value.to_json()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
