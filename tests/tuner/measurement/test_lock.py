"""S08: one process measures at a time, and a waiting one learns who does."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tuner import process
from tuner.errors import BusyError
from tuner.measurement import lock
from tuner.measurement.lock import measuring_lock

HOLD = (
    "import sys\nfrom pathlib import Path\nfrom tuner.measurement.lock import measuring_lock\n"
    "with measuring_lock(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.readline()\n"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "measuring.lock"


@pytest.fixture
def holder(path: Path):
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=process.python_environment(),
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        yield child
        child.kill()


def test_s08_a_second_process_is_told_the_owners_pid(path: Path, holder: subprocess.Popen[bytes]):
    with pytest.raises(BusyError, match=f"process {holder.pid}"), measuring_lock(path):
        pass
    # Having tried does not make the owner unknown.
    with pytest.raises(BusyError, match=f"process {holder.pid}"), measuring_lock(path):
        pass


def test_s08_a_killed_owner_frees_the_lock(path: Path, holder: subprocess.Popen[bytes]):
    holder.kill()
    holder.wait()
    with measuring_lock(path):
        pass


def test_s08_waiting_gets_the_lock_when_it_is_free(
    path: Path, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lock, "_POLL_S", 0.01)
    entered = threading.Event()

    def wait() -> None:
        with measuring_lock(path, wait=True):
            entered.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not entered.is_set()
    assert holder.stdin is not None
    holder.stdin.write(b"\n")
    holder.stdin.close()
    assert entered.wait(20)
    waiter.join(20)


def test_the_lock_is_free_again_after_an_error(path: Path):
    with pytest.raises(RuntimeError), measuring_lock(path):
        raise RuntimeError
    with measuring_lock(path):
        assert path.with_suffix(".owner").exists()
    assert not path.with_suffix(".owner").exists()


def test_the_place_is_the_same_for_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock, "_FOLDERS", (tmp_path / "absent", tmp_path))
    found = lock.default_path()
    assert found == tmp_path / "cputune" / "measuring.lock"
    assert found.parent.stat().st_mode & 0o777 == 0o777
