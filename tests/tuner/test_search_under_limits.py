"""A search uses and reports what its process may use, not what the machine has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PERIOD_US = 100_000
TIMEOUT_S = 120


def search(home: Path, model: Path, prepare: Callable[[], None] | None = None) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tuner.cli.main",
        "search",
        "--engines",
        "simulated",
        "--model",
        str(model),
    ]
    done = subprocess.run(
        [*command, "--trials", "3", "--budget", "15s", "--variants", "q8_0", "--json"],
        preexec_fn=prepare,
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_search_on_one_cpu_of_the_affinity_mask(home: Path, tiny_model: Path):
    one = min(os.sched_getaffinity(0))
    document = search(home, tiny_model, lambda: os.sched_setaffinity(0, {one}))
    assert document["machine"]["effective_cpus"] == 1
    assert document["best"]["config"]["n_threads"] == 1


@pytest.fixture
def half_a_cpu() -> Iterator[Path]:
    """A control group with half a CPU, of either version, where this user may make one."""
    name = f"cputune-test-{os.getpid()}"
    attempts = (
        (Path("/sys/fs/cgroup/cpu", name), "cpu.cfs_quota_us", str(PERIOD_US // 2)),
        (Path("/sys/fs/cgroup", name), "cpu.max", f"{PERIOD_US // 2} {PERIOD_US}"),
    )
    for group, limit, value in attempts:
        try:
            group.mkdir()
            (group / limit).write_text(value)
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("no control group with a CPU limit can be made here")


def test_a_search_in_a_control_group_with_half_a_cpu(half_a_cpu: Path, home: Path, tiny_model: Path):
    def join() -> None:
        (half_a_cpu / "cgroup.procs").write_text(str(os.getpid()))

    document = search(home, tiny_model, join)
    assert document["machine"]["effective_cpus"] == 1
    assert document["machine"]["limited_by"] == "quota"
    assert document["best"]["config"]["n_threads"] == 1
