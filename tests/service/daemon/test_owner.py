"""G14: one daemon a data folder; the second is told whose it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.daemon.owner import state_lock
from tuner.errors import BusyError
from tuner.home import Home

ROOT = Path(__file__).parents[3]
HOLD = (
    "import sys; from pathlib import Path\n"
    "from service.daemon.owner import state_lock; from tuner.home import Home\n"
    "with state_lock(Home(Path(sys.argv[1]))):\n    print('held', flush=True); sys.stdin.read()\n"
)


def test_g14_a_second_daemon_is_told_whose_folder_it_is(home: Path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, home],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with (
            pytest.raises(BusyError, match=rf"process {child.pid}, since 20.*CPUTUNE_HOME"),
            state_lock(Home(home)),
        ):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
    with state_lock(Home(home)):
        assert json.loads((home / "daemon.owner").read_text())["pid"] == os.getpid()
    assert not (home / "daemon.owner").exists()


@pytest.mark.parametrize("told", ["", "{", "[]", "{}"])
def test_an_owner_that_could_not_be_written_is_unknown(home: Path, told: str):
    with state_lock(Home(home)):
        (home / "daemon.owner").write_text(told)
        with pytest.raises(BusyError, match="its process is unknown"), state_lock(Home(home)):
            pass
