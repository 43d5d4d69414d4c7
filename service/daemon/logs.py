"""The daemon's log: lines for people, or one JSON object a line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """Time, level, logger and message, and beside them the values that the call gave in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        found: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        found |= {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def set_up(style: str) -> None:
    """Log to stderr in a style, "text" or "json"."""
    handler = logging.StreamHandler()
    usual = logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S")
    handler.setFormatter(JsonLines() if style == "json" else usual)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)
