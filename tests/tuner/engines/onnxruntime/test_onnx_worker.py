"""The engine in a worker: where its threads run, what it maps, what it does when nothing is to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from profiles.vocabulary import Config
from tuner import engines, process
from tuner.measurement import placement
from tuner.measurement.availability import availability
from tuner.measurement.isolation import Deadlines, Worker

pytestmark = pytest.mark.real

ENGINE = engines.get("onnxruntime")
Start = Callable[..., Worker]


@pytest.fixture
def start(tiny_folder: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a worker with the made-up model on two threads."""
    started: list[Worker] = []

    def begin(spinning: str = "on", affinity: Sequence[int] | None = None) -> Worker:
        worker = Worker.start(
            ENGINE,
            environment=placement.environment(Config.of("onnxruntime", "source", {})),
            affinity=affinity,
            log_path=tmp_path / "worker.log",
            deadline_s=60.0,
        )
        started.append(worker)
        settings = {"intra_op_num_threads": 2, "spinning": spinning, "graph_optimization_level": "all"}
        worker.load(tiny_folder, settings, Deadlines(), affinity=affinity)
        worker.request("configure", {"settings": {}, "context_tokens": 64, "streams": 1}, 60.0)
        return worker

    yield begin
    for worker in started:
        worker.kill()


def run_round(worker: Worker, output_tokens: int = 8) -> None:
    worker.request(
        "round",
        {"prompts": [list(range(20))], "output_tokens": output_tokens, "reuse_prefix": False},
        60.0,
    )


def test_e19_the_affinity_holds_for_every_thread_of_the_pool(start: Start) -> None:
    cpu = min(os.sched_getaffinity(0))
    worker = start(affinity=(cpu,))
    run_round(worker)
    assert worker.affinities == [[cpu]]
    threads = list(Path(f"/proc/{worker.pid}/task").iterdir())
    assert len(threads) >= 2
    allowed = {(thread / "status").read_text().partition("Cpus_allowed_list:\t")[2] for thread in threads}
    assert {one.partition("\n")[0] for one in allowed} == {str(cpu)}


def test_e01_a_pool_in_a_restricted_box_pins_nothing(start: Start) -> None:
    worker = start(affinity=(min(os.sched_getaffinity(0)),))
    assert "affinity" not in worker.log_tail().lower()


def test_e03_idle_threads_sleep_when_they_may_not_spin(start: Start) -> None:
    worker = start(spinning="off")
    run_round(worker)
    before = cpu_s(worker.pid)
    process.run(["sleep", "0.5"], deadline_s=10)
    assert cpu_s(worker.pid) - before <= 0.02


def test_k06_one_process_maps_one_runtime(start: Start) -> None:
    maps = Path(f"/proc/{start().pid}/maps").read_text()
    libraries = {Path(line.split()[-1]).name for line in maps.splitlines() if ".so" in line}
    assert sum("libonnxruntime.so" in name for name in libraries) == 1
    assert not {name for name in libraries if name.startswith(("libgomp", "libiomp", "libomp", "libtorch"))}


def test_k01_the_probe_generates_with_a_made_up_model() -> None:
    found = availability(ENGINE)
    assert found.available, found.reason
    assert found.version
    assert "onnxruntime " in (found.build or "")


def cpu_s(pid: int) -> float:
    """The CPU time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
