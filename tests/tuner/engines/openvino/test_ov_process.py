"""A process that runs OpenVINO: its threads, where they may run, what it loads."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from probes.machine import Machine
from tuner import engines, process
from tuner.engines.openvino.describe import OpenVino
from tuner.measurement.availability import availability

pytestmark = pytest.mark.real

_COMPUTE = """
import json, os, sys, threading
from pathlib import Path
from tuner.engines.openvino.caches import OwnCache
from tuner.engines.openvino.graph import Graph
from tuner.measurement import counters
graph = Graph(Path(sys.argv[1]), {"attention_backend": "sdpa", **json.loads(sys.argv[2])})
cache, seen, ended = OwnCache(graph), set(), threading.Event()

def look():
    # OpenVINO binds its threads while they compute, and no longer.
    while not ended.is_set():
        try:
            seen.update(map(tuple, counters.thread_affinities()))
        except ProcessLookupError:
            continue

watcher = threading.Thread(target=look)
watcher.start()
for _ in range(20):
    cache.keep(0)
    cache.feed([token % 90 for token in range(400)])
ended.set()
watcher.join()
libraries = {line.split("/")[-1].strip() for line in open("/proc/self/maps") if "omp" in line.split("/")[-1]}
print(json.dumps({"effective": graph.effective(), "bound": sorted(seen), "openmp": sorted(libraries)}))
"""


def computed(folder: Path, settings: dict[str, object], cpus: set[int] | None = None) -> dict[str, object]:
    """What a process says that computes on some CPUs, set before it imports anything."""
    own = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus or own)
        ending = process.run(
            [sys.executable, "-P", "-c", _COMPUTE, str(folder), json.dumps(settings)], deadline_s=60
        )
    finally:
        os.sched_setaffinity(0, own)
    assert ending.returncode == 0, ending.log_tail
    found: dict[str, object] = json.loads(ending.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("pinned", [False, True])
def test_e19_threads_stay_on_the_cpus_that_are_given(pinned: bool, tiny_folder: Path) -> None:
    last = max(os.sched_getaffinity(0))
    found = computed(tiny_folder, {"enable_cpu_pinning": pinned, "inference_num_threads": 1}, {last})
    assert found["bound"] == [[last]]


def test_e07_one_pinned_thread_takes_the_same_cpu_in_every_process(tiny_folder: Path) -> None:
    """So pinning is a setting to be searched, and not for several processes side by side."""
    every = sorted(os.sched_getaffinity(0))
    if len(every) < 2:
        pytest.skip("one CPU is no choice")
    settings: dict[str, object] = {"inference_num_threads": 1, "enable_cpu_pinning": True}
    taken = [computed(tiny_folder, settings)["bound"] for _ in range(2)]
    assert taken[0] == taken[1]
    assert min(taken[0], key=len) == every[:1]
    assert computed(tiny_folder, {**settings, "enable_cpu_pinning": False})["bound"] == [every]


def test_e06_the_number_of_threads_is_read_back_and_k06_no_openmp_comes_in(tiny_folder: Path) -> None:
    """It waits in a pool of its own: `has_openmp` is false, and two OpenMP runtimes can't meet."""
    found = computed(tiny_folder, {"inference_num_threads": 1})
    assert isinstance(found["effective"], dict)
    assert found["effective"]["inference_num_threads"] == 1
    assert found["openmp"] == []
    assert not OpenVino().has_openmp


def test_one_thread_in_bf16_still_crashes_on_amx(f16_folder: Path, machine: Machine) -> None:
    """Where this fails, OpenVINO has mended it: `describe._crashes` can go."""
    if "amx_bf16" not in machine.features:
        pytest.skip("this CPU has no AMX")
    code = (
        "import sys; from pathlib import Path; from tuner.engines.openvino.graph import Graph;"
        " Graph(Path(sys.argv[1]), {'inference_num_threads': 1, 'inference_precision_hint': 'bf16'})"
    )
    ending = process.run([sys.executable, "-P", "-c", code, str(f16_folder)], deadline_s=60)
    assert -ending.returncode == signal.SIGFPE


def test_it_runs_here() -> None:
    found = availability(engines.get("openvino"))
    assert found.available, found.reason
    assert "genai" in (found.build or "")


def test_a_maker_says_why_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    ending = process.run(
        process.python_argv(OpenVino().maker(), str(broken), str(tmp_path / "x"), '{"weights": "given"}'),
        deadline_s=60,
    )
    assert ending.returncode != 0
    assert ending.log_tail.splitlines()[-1]


def test_the_source_is_left_alone(small_folder: Path) -> None:
    """The reader writes beside what it reads: not beside the user's file."""
    assert [path.name for path in (small_folder.parent / "source").iterdir()] == ["q8_0.gguf"]
    assert sorted(path.name for path in small_folder.iterdir()) == [
        "cputune.json", "openvino_detokenizer.bin", "openvino_detokenizer.xml", "openvino_model.bin",
        "openvino_model.xml", "openvino_tokenizer.bin", "openvino_tokenizer.xml",
    ]  # fmt: skip
