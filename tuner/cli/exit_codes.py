"""The one place where an error becomes an exit code."""

from __future__ import annotations

from probes.errors import CputuneError, ProbeError
from profiles.errors import DocumentError, NotFoundError, StoreError
from tuner.errors import (
    BusyError,
    EngineUnavailableError,
    ModelFileError,
    NothingFeasibleError,
    ServerError,
    UsageError,
)

DONE = 0
FAILED = 1
ARGUMENTS = 2
NOTHING_FEASIBLE = 3
MODEL_UNUSABLE = 4
NO_ENGINE = 5
BUSY = 75
INTERRUPTED = 130
TERMINATED = 143

_CODES: tuple[tuple[type[CputuneError], int], ...] = (
    (UsageError, ARGUMENTS),
    (ProbeError, ARGUMENTS),
    (DocumentError, ARGUMENTS),
    (NothingFeasibleError, NOTHING_FEASIBLE),
    (NotFoundError, NOTHING_FEASIBLE),
    (ModelFileError, MODEL_UNUSABLE),
    (EngineUnavailableError, NO_ENGINE),
    (BusyError, BUSY),
    (StoreError, FAILED),
    (ServerError, FAILED),
)


def code_of(error: CputuneError) -> int:
    """The exit code of an error; `FAILED` for one without a code of its own."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
