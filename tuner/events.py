"""Progress as events, which the command line and the service render."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    """Something that happened: `kind` is one of `KINDS`, `detail` its values by name."""

    kind: str
    message: str = ""
    detail: Mapping[str, object] = field(default_factory=dict)


KINDS = (
    "stage",  # a stage of the flow began; the message is its name
    "note",  # one line worth reading once
    "trial",  # a trial ended; detail: number, status, config, value, reason, best, left_s,
    # dropped (rounds by cause)
    "quality",  # a contender was judged; detail: config, quality, variant, is_source
    "pair",  # a pair of processes ended; detail: pair, ratio, median, left_s
)

Observer = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """An observer that looks away."""
