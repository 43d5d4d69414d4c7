"""The program as a shell runs it: signals, closed pipes, several at once."""

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from profiles.records import StudyStatus
from profiles.vocabulary import TrialStatus
from tests.support.commands import begin, command
from tests.support.flow import Flow
from tests.support.kills import living_in
from tuner.cli.main import _report_fault
from tuner.measurement.lock import measuring_lock

SEARCH = ("--engines", "simulated", "--variants", "source,bf16")


def read_until(process: subprocess.Popen[str], part: str) -> str:
    """What a process says on stderr up to the first line with `part`."""
    said = ""
    assert process.stderr is not None
    for line in process.stderr:
        said += line
        if part in line:
            return said
    raise AssertionError(f"'{part}' was never said: {said}")


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process says to its end, beyond what was read: `communicate` would lose what is buffered."""
    assert process.stdout is not None
    assert process.stderr is not None
    err, out = process.stderr.read(), process.stdout.read()
    process.wait(timeout=20)
    process.stdout.close()
    process.stderr.close()
    return out, err


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(flow: Flow):
    process = begin("search", "--model", str(flow.model), *SEARCH, "--budget", "60s", "--json")
    read_until(process, "  complete")
    process.send_signal(signal.SIGINT)
    out, err = rest_of(process)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert "interrupted; what was finished is kept" in last
    assert "the same command (without --fresh) goes on from there" in last
    assert flow.study().status is StudyStatus.INTERRUPTED
    trials = flow.trials()
    assert trials[0].status is TrialStatus.COMPLETE
    assert all(trial.status is not TrialStatus.RUNNING for trial in trials)
    assert living_in({process.pid}) == []
    shown = json.loads(command("show", flow.study().id, "--trials", "--json").stdout)
    assert shown["status"] == "interrupted"


def test_sigterm_ends_like_ctrl_c_with_a_code_of_its_own(flow: Flow):
    process = begin("search", "--model", str(flow.model), *SEARCH, "--budget", "60s", "--json")
    read_until(process, "  complete")
    process.send_signal(signal.SIGTERM)
    out, err = rest_of(process)
    assert (process.returncode, out) == (143, ""), err
    assert "Traceback" not in err
    assert "interrupted; what was finished is kept" in err.splitlines()[-1]
    assert flow.study().status is StudyStatus.INTERRUPTED
    assert flow.trials()[0].status is TrialStatus.COMPLETE
    assert living_in({process.pid}) == []


def test_a_search_that_waits_begins_when_the_lock_is_free(flow: Flow, tmp_path: Path):
    call = ("search", "--model", str(flow.model), "--engines", "simulated", "--variants", "source")
    with measuring_lock(tmp_path / "measuring.lock"):
        waiting = begin(*call, "--trials", "1", "--budget", "10s", "--wait", "--json")
        read_until(waiting, "waiting")
        assert waiting.poll() is None
        assert flow.home.database.exists()
        with flow.store() as store:
            assert store.studies() == ()
    out, err = rest_of(waiting)
    assert waiting.returncode == 0, err
    assert json.loads(out)["status"] == "no_gain"


def test_a_second_search_says_that_the_machine_is_busy(flow: Flow, tmp_path: Path):
    with measuring_lock(tmp_path / "measuring.lock"):
        ended = command("search", "--model", str(flow.model), *SEARCH, "--trials", "1")
    assert (ended.returncode, ended.stdout) == (75, "")
    said = ended.stderr.splitlines()[-1]
    assert f"another process measures on this machine (process {os.getpid()})" in said
    assert "add --wait" in ended.stderr
    with flow.store() as store:
        assert store.studies() == ()


def test_a_reader_that_goes_away_is_no_error(flow_after: Flow):
    reading, writing = os.pipe()
    os.close(reading)
    process = begin("history", "--json", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, "")


@pytest.mark.parametrize("call", [("history",), ("history", "--json"), ("models", "list"), ("engines",)])
def test_a_closed_stdout_hides_what_is_printed_and_nothing_else(flow_after: Flow, call: tuple[str, ...]):
    process = begin(*call, closed=(1,))
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_d02_eight_commands_that_start_together_on_nothing_all_succeed(flow: Flow):
    calls = (("history",), ("models", "list"), ("models", "add", str(flow.model)), ("history",))
    processes = [begin(*call, "--json") for call in calls * 2]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        assert json.loads(out)["schema_version"] == 1
    with flow.store() as store:
        assert len(store.models()) == 1
    assert not list(flow.home.root.glob("*.backup"))


def test_a_fault_of_our_own_is_one_line_and_a_file(home: Path, tmp_path: Path, monkeypatch):
    """An import that fails in a way nobody foresaw."""
    (tmp_path / "sqlmodel.py").write_text("raise LookupError('first line\\nsecond line')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ended = command("history")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(ended.stderr.splitlines()) == 1
    assert "a fault of cputune's own: LookupError: first line" in ended.stderr
    assert "second line" in next(tmp_path.glob("cputune-fault-*.txt")).read_text()


def test_a_fault_on_a_full_disk_is_one_line_too(monkeypatch, capsys):
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    _report_fault(LookupError, LookupError("first line\nsecond line"), None)
    assert capsys.readouterr().err == (
        "cputune: a fault of cputune's own: LookupError: first line; what led to it could not be written down"
        " (No space left on device), please report it\n"
    )
