"""What became of something that came in from another store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["added", "extended", "known", "refused"]


@dataclass(frozen=True)
class Taken:
    """One thing that came in; `note` says why it was refused, or what its name is here."""

    what: str
    name: str
    outcome: Outcome
    note: str = ""
