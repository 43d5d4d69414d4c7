"""Children end when they should, and say how."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from profiles.vocabulary import TrialStatus
from tests.support.waiting import wait_for
from tuner import process

NODE = 0
"""A NUMA node that every machine has."""


def python(code: str) -> list[str]:
    return [sys.executable, "-P", "-c", code]


def test_run_gives_stdout_and_the_end_of_stderr():
    ending = process.run(
        python("import sys; print('out'); sys.stderr.write('x' * 9000 + 'last line\\n'); sys.exit(3)"),
        deadline_s=20,
    )
    assert (ending.returncode, ending.timed_out, ending.stdout) == (3, False, b"out\n")
    assert ending.log_tail.endswith("last line")
    assert len(ending.log_tail) <= process.LOG_TAIL_BYTES


def test_s03_run_kills_the_group_at_the_deadline(tmp_path: Path):
    code = (
        "import subprocess, sys, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "signal.pause()\n"
    )
    started = time.monotonic()
    ending = process.run(python(code), deadline_s=3.0)
    assert ending.timed_out
    assert ending.returncode == -signal.SIGKILL
    # Only to tell it from never: a loaded machine may take its time.
    assert time.monotonic() - started < 30.0
    # Nobody waits for the grandchild: the kernel ends it when it comes to that.
    wait_for(lambda: not process.alive(int((tmp_path / "pid").read_text())))


def test_programs_run_side_by_side_and_one_that_hangs_hides_no_other(tmp_path: Path):
    """The first two wait for each other, the last one for nothing."""
    for name in ("question", "answer"):
        os.mkfifo(tmp_path / name)
    folder = f"import os; os.chdir({str(tmp_path)!r}); "
    asking = folder + "open('question', 'w').write('?'); print(open('answer').read())"
    answering = folder + "print(open('question').read()); open('answer', 'w').write('!')"
    endings = process.run_together(
        [python(asking), python(answering), python("import signal; signal.pause()")], deadline_s=8.0
    )
    assert [one.stdout for one in endings] == [b"!\n", b"?\n", b""]
    assert [one.timed_out for one in endings] == [False, False, True]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("SIGSEGV", TrialStatus.CRASH),
        ("SIGABRT", TrialStatus.CRASH),
        ("SIGILL", TrialStatus.ILLEGAL_INSTRUCTION),
        ("SIGKILL", TrialStatus.CRASH),
    ],
)
def test_s04_an_exit_by_signal_has_a_status_and_a_name(name: str, status: TrialStatus):
    ending = process.run(python(f"import os, signal; os.kill(os.getpid(), signal.{name})"), deadline_s=20)
    seen, text = process.describe_exit(ending.returncode)
    assert seen is status
    assert name in text
    assert process.describe_exit(128 + signal.Signals[name])[0] is status


def test_s04_a_kill_while_the_oom_counter_rose_is_out_of_memory():
    assert process.describe_exit(-9, oom_killed=True)[0] is TrialStatus.OUT_OF_MEMORY
    status, _ = process.describe_exit(-6, log_tail="terminate called after ... 'std::bad_alloc'")
    assert status is TrialStatus.OUT_OF_MEMORY
    assert process.describe_exit(3) == (TrialStatus.CRASH, "exit code 3")


def test_the_memory_limit_bounds_private_memory():
    code = "try:\n    bytearray(400 << 20)\nexcept MemoryError:\n    print('refused')"
    limited = process.run(python(code), deadline_s=20, memory_bytes=200 << 20)
    assert limited.stdout == b"refused\n"
    assert process.run(python(code), deadline_s=20).stdout == b""


def test_e19_affinity_holds_before_the_program_starts():
    cpu = max(os.sched_getaffinity(0))
    with subprocess.Popen(["true"]):
        pass
    child = process.spawn(
        python("import os; print(sorted(os.sched_getaffinity(0)))"), affinity=[cpu], stdout=subprocess.PIPE
    )
    out, _ = child.communicate(timeout=20)
    assert out == f"[{cpu}]\n".encode()


def test_e18_memory_is_bound_before_the_program_starts():
    """By the policy itself, for threads that it starts too; a node that is not there binds nothing."""
    code = (
        "import threading\n"
        "from tuner.measurement import counters\n"
        "ended = threading.Event()\n"
        "threading.Thread(target=ended.wait).start()\n"
        "print(counters.memory_policies())\n"
        "ended.set()\n"
    )
    said = {}
    for node in (None, NODE, 1023):
        child = process.spawn(python(code), memory_node=node, stdout=subprocess.PIPE)
        said[node] = child.communicate(timeout=20)[0].decode().strip()
    if said[NODE] == "[]":
        pytest.skip("this kernel keeps no numa_maps")
    if said[NODE] == said[None]:
        pytest.skip("set_mempolicy is refused here")
    assert said == {None: said[None], NODE: f"['bind:{NODE}']", 1023: said[None]}


def test_a_child_dies_with_its_parent(tmp_path: Path):
    parent_code = (
        "import sys, signal, subprocess\n"
        "from tuner import process\n"
        "child = process.spawn([sys.executable, '-c', 'import signal; print(1, flush=True); signal.pause()'],"
        " stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        python(parent_code), stdout=subprocess.PIPE, env=process.python_environment()
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert process.alive(child)
        # A pidfd is readable once the process has ended: no polling, no sleep.
        with os.fdopen(os.pidfd_open(child), "rb", buffering=0) as ended:
            parent.kill()
            parent.wait()
            import select

            assert select.select([ended], [], [], 10)[0]
    assert not process.alive(child)


def test_our_modules_run_with_the_working_folder_off_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "profiles.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    ending = process.run(process.python_argv("profiles.vocabulary"), deadline_s=20)
    assert (ending.returncode, ending.log_tail) == (0, "")


def test_a_missing_program_is_an_exit_code_with_a_reason():
    ending = process.run(["/nonexistent/program"], deadline_s=20)
    assert ending.returncode == 127
    assert "No such file" in ending.log_tail


def test_oom_kills_is_a_number_anywhere():
    assert process.oom_kills() >= 0


def test_a_child_gives_way_when_told():
    child = process.spawn(python("import signal; signal.pause()"))
    try:
        process.lower_priority(child.pid, 19)
        told = psutil.Process(child.pid)
        assert (told.nice(), told.ionice().ioclass) == (19, psutil.IOPRIO_CLASS_IDLE)
    finally:
        process.kill_group(child, grace_s=0.0)
    process.lower_priority(child.pid, 19)
