"""Whatever a worker does, the parent gets a status in time and nothing is left behind."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from profiles.vocabulary import QUALITY_LEVELS, Config, TrialStatus
from tuner import process
from tuner.engines.simulated import faults, files
from tuner.engines.simulated.describe import Simulated
from tuner.errors import WorkerError
from tuner.measurement import placement, quality
from tuner.measurement.availability import availabilities, availability
from tuner.measurement.bench import Bench
from tuner.measurement.isolation import Deadlines, Worker

HASTY = Deadlines(start_s=30.0, load_s=0.6, progress_s=0.3, run_s=0.8, least_run_s=0.8)


def start(tmp_path: Path, **arguments: object) -> Worker:
    fitting = {"log_path": tmp_path / "worker.log", "deadline_s": 30.0, **arguments}
    return Worker.start(Simulated(), **fitting)


@pytest.mark.parametrize("moment", ["load", "decode"])
@pytest.mark.parametrize(
    ("kind", "status", "word"),
    [
        ("segv", TrialStatus.CRASH, "SIGSEGV"),
        ("abort", TrialStatus.CRASH, "SIGABRT"),
        ("sigill", TrialStatus.ILLEGAL_INSTRUCTION, "SIGILL"),
        ("sigkill", TrialStatus.CRASH, "SIGKILL"),
        ("exit", TrialStatus.CRASH, "exit code 3"),
        ("refuse", TrialStatus.ENGINE_ERROR, "refuses"),
        ("garbage_protocol", TrialStatus.PROTOCOL, "no JSON"),
    ],
)
def test_s04_e11_a_failure_becomes_a_status_and_the_bench_goes_on(
    kind: str,
    status: TrialStatus,
    word: str,
    moment: str,
    make_bench: Callable[..., Bench],
    default: Config,
    set_faults: Callable[..., None],
):
    set_faults({"q4_0": f"{kind}_on_{moment}"})
    bench = make_bench()
    with pytest.raises(WorkerError) as caught:
        bench.measure(replace(default, variant="q4_0"), rounds=1)
    assert caught.value.status is status
    assert word in caught.value.reason
    assert len(bench.measure(default, rounds=1).rounds) == 1


@pytest.mark.parametrize(
    ("moment", "status"), [("load", TrialStatus.LOAD_TIMEOUT), ("decode", TrialStatus.RUN_TIMEOUT)]
)
def test_s03_a_hang_is_killed_at_its_own_deadline(
    moment: str,
    status: TrialStatus,
    make_bench: Callable[..., Bench],
    default: Config,
    set_faults: Callable[..., None],
):
    set_faults({"*": f"hang_on_{moment}"})
    began = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        make_bench(deadlines=HASTY).measure(default, rounds=1)
    assert caught.value.status is status
    # Only to tell it from never: a loaded machine may take its time.
    assert time.monotonic() - began < 60.0


def test_s03_the_callers_budget_bounds_every_wait(
    make_bench: Callable[..., Bench], default: Config, set_faults: Callable[..., None]
):
    set_faults({"*": "hang_on_decode"})
    until = time.monotonic() + 3.0
    bench = make_bench(remaining_s=lambda: until - time.monotonic())
    with pytest.raises(WorkerError) as caught:
        bench.measure(default, rounds=1)
    assert caught.value.status in (TrialStatus.RUN_TIMEOUT, TrialStatus.LOAD_TIMEOUT)
    assert time.monotonic() < until + 20.0


def test_m12_a_load_that_makes_headway_passes_its_soft_deadline(
    make_bench: Callable[..., Bench], default: Config, set_faults: Callable[..., None]
):
    set_faults({"*": "slow_on_load"})
    slow = replace(HASTY, load_s=0.35, progress_s=0.3, run_s=20.0)
    assert make_bench(deadlines=slow).measure(default, rounds=1).rounds
    hard = replace(slow, load_hard_factor=1.2)
    with pytest.raises(WorkerError) as caught:
        make_bench(deadlines=hard).measure(default, rounds=1)
    assert caught.value.status is TrialStatus.LOAD_TIMEOUT


def test_m12_the_load_deadline_grows_with_the_file():
    soft, hard = Deadlines(load_s=20.0, load_bytes_per_s=1e6, load_hard_factor=10.0).load(50_000_000)
    assert (soft, hard) == (70.0, 700.0)


def test_s04_passing_the_memory_limit_is_out_of_memory(
    make_bench: Callable[..., Bench], default: Config, set_faults: Callable[..., None]
):
    set_faults({"*": "memory_on_decode"})
    with pytest.raises(WorkerError) as caught:
        make_bench(memory_bytes=400 << 20).measure(default, rounds=1)
    assert caught.value.status is TrialStatus.OUT_OF_MEMORY


def test_garbage_on_stdout_is_only_a_log(
    make_bench: Callable[..., Bench], default: Config, set_faults: Callable[..., None], tmp_path: Path
):
    set_faults({"*": ["garbage_stdout_on_load", "garbage_stdout_on_decode"]})
    bench = make_bench()
    assert bench.measure(default, rounds=2).rounds
    assert "garbage" in next((tmp_path / "logs").iterdir()).read_text(errors="replace")
    bench.close()
    assert not list((tmp_path / "logs").iterdir())


def test_e19_affinity_holds_before_the_engine_is_imported(tmp_path: Path):
    cpu = max(os.sched_getaffinity(0))
    with start(tmp_path, affinity=[cpu]) as worker:
        assert worker.affinities == [[cpu]]
        assert os.sched_getaffinity(worker.pid) == {cpu}


def test_e19_a_thread_on_another_cpu_invalidates(tmp_path: Path):
    worker = start(tmp_path)
    with pytest.raises(WorkerError) as caught:
        worker._check_affinity({"affinities": [[0], [0, 4095]]}, [0])
    assert caught.value.status is TrialStatus.INVALID
    assert "[4095]" in caught.value.reason
    assert not process.alive(worker.pid)


def test_a_dead_worker_refuses_further_requests_and_close_is_harmless(tmp_path: Path):
    worker = start(tmp_path)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerError) as caught:
        worker.request("memory", {}, 10.0)
    assert "SIGKILL" in caught.value.reason
    with pytest.raises(WorkerError, match="has ended"):
        worker.request("memory", {}, 10.0)
    worker.close()
    worker.kill()


def test_a_stopped_worker_that_reads_nothing_can_not_block_the_parent(tmp_path: Path):
    worker = start(tmp_path)
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerError) as caught:
        worker.request("tokenize", {"text": "x" * (4 << 20)}, 0.3)
    assert caught.value.status is TrialStatus.RUN_TIMEOUT
    assert not process.alive(worker.pid)


def test_close_ends_the_process(tmp_path: Path):
    with start(tmp_path) as worker:
        assert worker.request("memory", {}, 10.0)["peak_rss_mib"] > 1
    assert not process.alive(worker.pid)


def test_an_unknown_operation_is_an_engine_error_and_the_worker_lives(tmp_path: Path):
    with start(tmp_path) as worker:
        with pytest.raises(WorkerError, match="no operation 'fly'") as caught:
            worker.request("fly", {}, 10.0)
        assert caught.value.status is TrialStatus.ENGINE_ERROR
        assert worker.request("tokenize", {"text": "a"}, 10.0) == {"tokens": [1, 100]}


def test_s03_a_killed_parent_leaves_no_worker(tmp_path: Path):
    code = (
        "import sys, signal\n"
        "from pathlib import Path\n"
        "from tuner.engines.simulated.describe import Simulated\n"
        "from tuner.measurement.isolation import Worker\n"
        f"worker = Worker.start(Simulated(), log_path=Path({str(tmp_path / 'log')!r}), deadline_s=30)\n"
        "print(worker.pid, flush=True)\n"
        "worker.load(Path(sys.executable), {}, __import__('tuner.measurement.isolation')"
        ".measurement.isolation.Deadlines())\n"
    )
    environment = process.python_environment(
        {**os.environ, faults.VARIABLE: json.dumps({"*": "hang_on_load"})}
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        with os.fdopen(os.pidfd_open(worker), "rb", buffering=0) as ended:
            parent.kill()
            parent.wait()
            assert select.select([ended], [], [], 10)[0]
    assert not process.alive(worker)


def test_a_scorer_runs_in_a_worker_of_its_own(tmp_path: Path):
    with start(tmp_path, role="scorer") as worker:
        assert worker.load(Path(sys.executable), {}, Deadlines())["affinities"]
        with pytest.raises(WorkerError, match="no operation 'round'"):
            worker.request("round", {}, 10.0)


@pytest.mark.parametrize(("variant", "kept"), [("q8_0", True), ("q4_0", False)])
def test_scorers_judge_a_variant_against_the_reference(variant: str, kept: bool, tmp_path: Path):
    def ask(label: str) -> quality.Ask:
        path = tmp_path / f"{label}.simulated"
        files.write(path, label)

        def once(op: str, payload: Mapping[str, object]) -> Mapping[str, object]:
            with start(tmp_path, role="scorer") as worker:
                worker.load(path, {}, Deadlines())
                return worker.request(op, payload, 60.0)

        return once

    judged = quality.judge(ask("f16"), ask(variant), tmp_path / "reference.npz")
    assert judged.meets(QUALITY_LEVELS["near-lossless"]) is kept


class Broken(Simulated):
    """An engine whose probe is the given code."""

    def __init__(self, code: str) -> None:
        self._code = code

    def probe_code(self) -> str:
        return self._code


def test_an_available_engine_says_version_and_build():
    found = availability(Simulated())
    assert (found.available, found.version, found.build) == (True, "1", "simulated-1")


def test_k01_an_illegal_instruction_on_import_is_explained(set_faults: Callable[..., None]):
    set_faults({"*": "sigill_on_import"})
    found = availability(Simulated(), features=["avx", "fma", "f16c", "bmi2"])
    assert not found.available
    assert "(no avx2)" in (found.reason or "")
    assert "CPU type" in (found.reason or "")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise OSError('libx.so: cannot open\\nlibc.musl-x86_64.so.1: not found')", "libc.musl"),
        ("import nonexistent_engine", "pip install 'cputune[simulated]'"),
        ("print('hello')", "without saying a version"),
        ("import sys; sys.stderr.write('first\\nlast'); sys.exit(4)", "exit code 4: last"),
    ],
)
def test_k01_p06_why_an_engine_is_not_available_is_one_line(code: str, reason: str):
    found = availability(Broken(code))
    assert not found.available
    assert reason in (found.reason or "")
    assert "\n" not in (found.reason or "")


def test_engines_are_tried_side_by_side_and_answer_in_their_order():
    found = availabilities([Broken("raise OSError('no')"), Simulated(), Broken("print('hello')")])
    assert [one.available for one in found] == [False, True, False]
    assert ("OSError: no" in (found[0].reason or ""), found[1].version) == (True, "1")


def test_k01_a_probe_that_hangs_is_not_available():
    found = availability(Broken("import signal; signal.pause()"), deadline_s=0.5)
    assert not found.available
    assert "0.5 s" in (found.reason or "")


def test_the_environment_of_a_worker_is_controlled(default: Config):
    base = {"OMP_NUM_THREADS": "7", "KMP_AFFINITY": "x", "GOMP_CPU_AFFINITY": "0", "PATH": "/bin"}
    found = placement.environment(default.with_settings(wait_policy="passive"), base)
    assert {name for name in found if "OMP" in name or "KMP" in name} == {"OMP_WAIT_POLICY"}
    assert found["PATH"] == "/bin"
    assert "OMP_WAIT_POLICY" not in placement.environment(default, base)
    with pytest.raises(Exception, match="allowed are default, short_spin, passive"):
        placement.environment(default.with_settings(wait_policy="sleepy"), base)
