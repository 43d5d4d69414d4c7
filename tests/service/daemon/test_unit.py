"""The systemd unit: whole, and shut in; by systemd's own word where it is here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[3] / "docs" / "how-to" / "cputune.service"
MOST_EXPOSURE = 2.0

has_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")


def analyzed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False
    )


@has_systemd
def test_systemd_takes_the_unit(tmp_path: Path):
    unit = tmp_path / "cputune.service"
    # Of the program only that it is there is checked.
    unit.write_text(UNIT.read_text().replace("/usr/local/bin/cputune", sys.executable))
    found = analyzed("verify", str(unit))
    assert (found.returncode, found.stderr) == (0, "")


@has_systemd
def test_systemd_finds_the_unit_shut_in():
    found = analyzed("security", "--offline=true", str(UNIT))
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd can't look at a unit that is not loaded")
    level = re.search(r"exposure level for cputune\.service: ([\d.]+)", found.stdout)
    assert level is not None, found.stderr
    assert float(level[1]) <= MOST_EXPOSURE


def test_it_starts_the_daemon_with_options_that_exist():
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    words = line.split()
    assert words[1] == "daemon"
    from service.daemon.commands import daemon

    named = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    assert named <= daemon.__annotations__.keys()
