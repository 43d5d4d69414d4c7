"""`cputune serve` with steps that take real time: `python -m tests.support.slow_service --port 0`."""

from __future__ import annotations

import sys

import pytest

from tests.support import sessions
from tuner.cli.main import run

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        sessions.serve_with(patch, sessions.Slow)
        raise SystemExit(run(["serve", *sys.argv[1:]]))
