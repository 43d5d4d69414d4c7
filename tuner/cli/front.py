"""The Pareto front of a search for two objectives, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from profiles.metrics import METRICS, base_name, flat_name
from tuner.cli.output import table

Document = Mapping[str, Any]


def front_parts(document: Document) -> Iterator[object]:
    """The table with a line about it; nothing with one objective."""
    objectives, front = document.get("objectives", ()), document.get("front", ())
    if len(objectives) < 2 or not front:
        return
    base = document["baseline"]["config"]
    columns = (*(f">{name}" for name in objectives), "variant", "differs from the default in")
    yield table(
        "Pareto front: to better one, the other must get worse", columns, _rows(front, objectives, base)
    )
    yield Text("By the search's short rounds; the first objective decided what is published.\n")


def _rows(front: list[Document], objectives: list[str], base: Document) -> Iterator[tuple[str, ...]]:
    from tuner.cli.render import settings_line

    for member in front:
        values = (member["metrics"].get(flat_name(name)) for name in objectives)
        numbers = [
            "-" if value is None else METRICS[base_name(name)].format(value)
            for name, value in zip(objectives, values, strict=True)
        ]
        yield (*numbers, member["variant"], settings_line(member["config"], base, "-"))
