"""The root of cputune's one error tree.

Every error that a user can see derives from `CputuneError`; each package hangs its own branch under it.

    CputuneError                 probes/errors.py
     ├─ ProbeError               probes/errors.py     the machine, or a description of one, cannot be read
     ├─ errors of profiles       profiles/errors.py   stored knowledge
     └─ errors of tuner          tuner/errors.py      requests, models, engines, measuring
"""

from __future__ import annotations

__all__ = ["CputuneError", "ProbeError"]


class CputuneError(Exception):
    """One thing that went wrong, told in one line.

    `message` says what happened, `seen` the value met, `allowed` what would have been right, `hint` what to
    do next; empty parts are left out of the line. `str(error)` never contains a line break.
    """

    def __init__(self, message: str, *, seen: object = None, allowed: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.seen = seen
        self.allowed = allowed
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.seen is not None:
            parts.append(f"got {self.seen!r}")
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        if self.hint:
            parts.append(self.hint)
        return " ".join("; ".join(parts).split())


class ProbeError(CputuneError):
    """The machine cannot be probed, or a document that should describe a machine does not."""
