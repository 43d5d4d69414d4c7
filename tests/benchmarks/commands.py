"""Runs the program for a benchmark, in a data folder and with a measuring lock of the benchmark's own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import process


@dataclass(frozen=True)
class Ran:
    """One call: its command as a user types it, seconds, exit code and output."""

    command: str
    seconds: float
    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The document that --json printed; RuntimeError with stderr where the call failed."""
        if self.code != 0:
            raise RuntimeError(f"{self.command} ended with {self.code}: {self.stderr.strip()[-500:]}")
        return dict(json.loads(self.stdout))


def environment(folder: Path) -> dict[str, str]:
    """The caller's, with a data folder and a lock under `folder`; it keeps bytecode as installations do."""
    own = {"CPUTUNE_HOME": str(folder / "home"), "CPUTUNE_LOCK": str(folder / "measuring.lock")}
    return process.python_environment({**os.environ, **own, "PYTHONDONTWRITEBYTECODE": ""})


def cputune(folder: Path, *arguments: str) -> Ran:
    """Run `cputune` to its end and take the time."""
    began = time.monotonic()
    ended = subprocess.run(
        process.python_argv("tuner.cli.main", *arguments),
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    return Ran(f"cputune {shlex.join(arguments)}", seconds, ended.returncode, ended.stdout, ended.stderr)
