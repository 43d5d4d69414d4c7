"""A busy neighbour runs exactly while it is wanted, and rounds beside it are not taken for disturbed."""

import os
import subprocess
import sys

import pytest

from tests.support.kills import living_in
from tuner import process
from tuner.measurement.neighbour import Neighbour
from tuner.process import alive

CPU = max(os.sched_getaffinity(0))


def test_it_spins_on_its_cpu_until_it_is_left():
    with Neighbour(CPU) as neighbour:
        pid = neighbour.pid
        assert pid is not None
        assert os.sched_getaffinity(pid) == {CPU}
        before = neighbour.ran_ns()
        while neighbour.ran_ns() <= before:
            pass
        assert alive(pid)
    assert not os.path.exists(f"/proc/{pid}")
    assert neighbour.pid is None


def test_it_ends_whatever_happens_beside_it():
    started = []

    def measure() -> None:
        with Neighbour(CPU) as neighbour:
            started.append(neighbour.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure()
    assert not os.path.exists(f"/proc/{started[0]}")


def test_it_dies_with_a_parent_that_is_killed():
    code = (
        "from tuner.measurement.neighbour import Neighbour\n"
        f"with Neighbour({CPU}) as neighbour:\n"
        "    print(neighbour.pid, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=process.python_environment(),
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
        parent.wait()
        # Its death is the kernel's doing, right after the parent's.
        while alive(pid):
            os.sched_yield()
    assert living_in({pid}) == []


def test_rounds_beside_it_are_marked_slower_and_clean(make_bench, default, machine):
    bench = make_bench()
    every = machine.effective.cpu_count
    config = default.with_settings(n_threads=every, n_threads_batch=every)
    quiet = bench.measure(config, rounds=1)
    with Neighbour(CPU) as neighbour:
        bench.neighbour = neighbour
        busy = bench.measure(config, rounds=1)
    bench.neighbour = None
    after = bench.measure(config, rounds=1)
    assert ["neighbour_ns" in m.rounds[0].facts for m in (quiet, busy, after)] == [False, True, False]
    assert busy.rounds[0].facts["neighbour_ns"] > 0
    assert busy.rounds[0].dropped is None
    assert busy.switched is None
    assert busy.rounds[0].wall_ms > 2 * quiet.rounds[0].wall_ms
    assert after.rounds[0].wall_ms == pytest.approx(quiet.rounds[0].wall_ms)
