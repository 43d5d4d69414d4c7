"""On a terminal of 80 columns no line is longer, but for a path, an id or a command that is to be copied."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import argv, environment
from tests.support.flow import Flow
from tuner.cli.output import folded


def on_a_terminal(*arguments: str) -> str:
    """What a command prints where it stands in a terminal of 80 columns."""
    leader, follower = pty.openpty()
    shown = {"COLUMNS": "80", "LINES": "40", "TERM": "dumb", "NO_COLOR": "1"}
    process = subprocess.Popen(
        argv(*arguments), env=environment(shown), stdout=follower, stderr=subprocess.DEVNULL, stdin=follower
    )
    os.close(follower)
    printed = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            # The other side is closed.
            break
        if not part:
            break
        printed += part
    os.close(leader)
    process.wait(timeout=60)
    return printed.decode()


@pytest.mark.parametrize(
    "call",
    [
        "models list",
        "history",
        "show {study} --trials",
        "recommend --engines simulated",
        "db check",
    ],
)
def test_every_line_fits(call: str, flow_after: Flow, finished: tuple[Path, dict[str, str]]) -> None:
    lines = on_a_terminal(*call.format(study=finished[1]["study"]).split()).splitlines()
    assert lines
    wide = [line for line in lines if len(line.rstrip()) > 80 and len(line.split()) > 1]
    assert wide == []


def test_what_has_no_blank_stays_whole() -> None:
    path = "/" + "x" * 100
    assert list(folded(f"  note {path} is there", 40)) == ["  note", f"    {path}", "    is there"]
    assert list(folded("")) == [""]
