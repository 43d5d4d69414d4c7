"""What an answer costs besides time: load, memory, CPU, and what mapping and locking would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from profiles.metrics import METRICS
from tuner.cli.flags import baseline_name
from tuner.cli.output import show, table
from tuner.cli.render import formatted

SHOWN = (
    "load_ms", "first_request_ms", "peak_rss_mib", "peak_anon_mib", "peak_file_mib", "huge_pages_mib",
    "model_file_mib", "cpu_utilisation", "cpu_s_per_token", "switches_per_token", "page_faults_per_token",
)  # fmt: skip
Document = Mapping[str, Any]


def resources_report(document: Document) -> None:
    """A table of the default and the best, and a line for each policy that was tried around the winner."""
    named = ((baseline_name(document), document["baseline"]), ("best", document["best"]))
    sides = [(name, side) for name, side in named if side is not None]
    lines = [
        (METRICS[name].description, *(formatted(side["metrics"], name) for _, side in sides))
        for name in SHOWN
        if any(name in side["metrics"] for _, side in sides)
    ]
    if lines:
        show(table("What it takes", ("", *(f">{name}" for name, _ in sides)), lines))
    show(*map(Text, policy_lines(document)))


def policy_lines(document: Document) -> Iterator[str]:
    """What mapping and locking cost, as tried around the winner; none in an older document."""
    for tried in document.get("policies", ()):
        named = ", ".join(f"{name}={str(value).lower()}" for name, value in tried["changes"].items())
        if tried["reason"]:
            yield f"{named}: not measured: {tried['reason']}"
            continue
        costs = ", ".join(
            f"{word} {formatted(tried['metrics'], name)}"
            for word, name in (("load", "load_ms"), ("memory", "peak_rss_mib"))
        )
        yield f"{named}: {costs}; {'taken' if tried['adopted'] else 'not better, left as it is'}"
