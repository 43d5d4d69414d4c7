"""The answer to `search --from`: which flags to change, and the command to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.measurement.looks import FEWEST_FOR_A_CLAIM

Document = Mapping[str, Any]


def baseline_name(document: Document) -> str:
    """What the answer is compared with."""
    return "your command" if document.get("from") else "default"


def the_baseline(document: Document) -> str:
    """The same inside a sentence."""
    return "your command" if document.get("from") else "the default"


def note_lines(document: Document) -> Iterator[str]:
    """What a user has to know of how the command was measured."""
    yield from (f"Your command: {note}." for note in (document.get("from") or {"notes": ()})["notes"])


def flag_lines(document: Document) -> Iterator[str]:
    """The changes with their gain, then the whole command in a line of its own; nothing without --from.

    The command is not to be wrapped: it is there to be copied.
    """
    flags = document.get("flags")
    if not document.get("from") or document["best"] is None:
        return
    if flags is None:
        yield ""
        yield f"No flags say it: the best runs on {document['best']['engine']}."
        return
    changes = [
        *(f"  change  {_said(one['flag'], one['before'])} -> {one['after']}" for one in flags["change"]),
        *(f"  add     {_said(one['flag'], one['value'])}" for one in flags["add"]),
        *(f"  remove  {_said(one['flag'], one['value'])}" for one in flags["remove"]),
    ]
    yield ""
    if not changes:
        pairs = (document["speedup"] or {"pairs": 0})["pairs"]
        yield "Keep your command" + (" until more shows:" if 0 < pairs < FEWEST_FOR_A_CLAIM else ":")
    else:
        yield f"Change these flags{_gain(document)}:"
        yield from changes
        yield from (f"  ({note})" for note in flags["notes"])
    yield ""
    yield flags["command"]


def _said(flag: str, value: str) -> str:
    """A variable of the environment, or a flag with its value."""
    return f"{flag}={value}" if flag.isupper() else f"{flag} {value}".rstrip()


def _gain(document: Document) -> str:
    speedup = document["speedup"]
    if speedup is None or not speedup["pairs"]:
        return ""
    return f" ({speedup['ratio']:.2f}x, {speedup['low']:.2f} to {speedup['high']:.2f})"
