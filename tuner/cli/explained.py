"""The explanation of an answer as text that fits into 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from tuner.cli.output import show, table
from tuner.cli.progress import short

Document = Mapping[str, Any]
MOST_REASONS = 8


def explanation_report(document: Document) -> None:
    """What each setting is worth, what would help next, which trials were lost."""
    if document["settings"]:
        columns = ("setting", ">matters", ">other", "and that is")
        title = "Why it won: what each setting is worth around the best"
        show(Text(), table(title, columns, _rows(document)))
        show(*(Text(line) for line in _legend(document)))
    show(
        *(Text(line) for line in _bullets("What would help next:", [n["text"] for n in document["next"]])),
        *(Text(line) for line in _bullets("Lost trials:", [_lost(one) for one in document["lost"]])),
    )


def _rows(document: Document) -> Iterator[tuple[str, ...]]:
    for one in document["settings"]:
        share = one["importance"]
        head = (f"{one['setting']}={short(one['best'])}", "-" if share is None else f"{100 * share:.0f} %")
        lines = [(short(other["value"]), _worth(other)) for other in one["alternatives"]]
        unknown = list(one["not_measured"])
        if one["setting"] == "variant":
            rivals = {r["variant"]: r for r in reversed(document["rivals"]) if r["variant"] in unknown}
            lines += [(name, _at_its_best(rival)) for name, rival in rivals.items()]
            unknown = [name for name in unknown if name not in rivals]
        if unknown:
            lines.append(("-", f"not measured next to it: {', '.join(map(short, unknown))}"))
        for line in lines or [("-", "no other value was tried")]:
            yield (*head, *line)
            head = ("", "")


def _at_its_best(rival: Document) -> str:
    speed = rival["speed"]
    compared = f"{speed:.2f}x faster" if speed > 1 else f"{1 / speed:.2f}x slower"
    return f"{compared} at its best" + (f", {rival['reason']}" if rival["reason"] else "")


def _worth(other: Document) -> str:
    return _ratio(other) + (f", {other['reason']}" if other["reason"] else "")


def _ratio(other: Document) -> str:
    ratio, low, high = other["ratio"], other["low"], other["high"]
    if other["verdict"] == "noise":
        return f"within the noise ({low:.2f} to {high:.2f})"
    if other["verdict"] == "worse":
        return f"{ratio:.2f}x slower ({low:.2f} to {high:.2f})"
    return f"{1 / ratio:.2f}x faster ({1 / high:.2f} to {1 / low:.2f})"


def _legend(document: Document) -> Iterator[str]:
    shares = ", ".join(f"{phase} {100 * share:.0f} %" for phase, share in document["phase_shares"].items())
    yield f"Ratios of {document['metric']} ({shares}), 95 % intervals from the search's short rounds."
    yield "matters: the share of what all settings explain, over all that was measured."


def _bullets(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"\n{title}"
    yield from (f"- {line}" for line in lines[:MOST_REASONS])
    if len(lines) > MOST_REASONS:
        yield f"- and {len(lines) - MOST_REASONS} more (--json)"


def _lost(one: Document) -> str:
    settings = " ".join(f"{name}={short(value)}" for name, value in one["blamed"].items())
    blamed = f"; only they had {settings}" if settings else ""
    reason = f": {one['reason']}" if one["reason"] else ""
    return f"{one['count']} {one['status']}{reason}{blamed}"
