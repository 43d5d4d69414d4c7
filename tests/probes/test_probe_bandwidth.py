"""The active measurements: their mechanism, not their figures."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from probes import bandwidth, smt
from probes.bandwidth import Bandwidth, buffer_size_bytes, measure_bandwidth, thread_counts
from probes.errors import ProbeError
from probes.machine import Machine, probe

MIB = 1 << 20


def small(machine: Machine) -> Machine:
    return replace(machine, caches=(), effective=replace(machine.effective, memory_bytes=256 * MIB))


def test_the_buffer_is_eight_times_the_cache_within_a_quarter_of_memory() -> None:
    assert buffer_size_bytes(32 * MIB, 16 << 30) == (256 * MIB, [])
    size, notes = buffer_size_bytes(480 * MIB, 8 << 30)
    assert size == 2 << 30
    assert notes == ["bandwidth buffer of 2048 MiB instead of 3840: a quarter of available memory"]
    assert buffer_size_bytes(0, None)[0] == 64 * MIB
    assert buffer_size_bytes(32 * MIB, 0)[0] == 4 * MIB


def test_thread_counts_end_with_the_machine_s() -> None:
    assert [thread_counts(n) for n in (1, 2, 6, 24)] == [
        (1,),
        (1, 2),
        (1, 2, 3, 4, 6),
        (1, 2, 3, 4, 8, 16, 24),
    ]


def test_it_measures_every_count_and_keeps_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth, "_READ_S", 0.05)
    machine = small(probe())
    found = measure_bandwidth(machine, tmp_path / "cache")
    assert [threads for threads, _ in found.gbps_by_threads] == list(
        thread_counts(machine.effective.cpu_count)
    )
    assert all(gbps > 0 for _, gbps in found.gbps_by_threads)
    assert found.best_gbps == max(gbps for _, gbps in found.gbps_by_threads)
    monkeypatch.setattr(bandwidth, "_measure", lambda *_: pytest.fail("measured twice"))
    monkeypatch.setattr(bandwidth, "smt_ratio", lambda *_: pytest.fail("measured twice"))
    if found.is_final:
        assert measure_bandwidth(machine, tmp_path / "cache") == found


def test_an_unfinished_or_damaged_result_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def fake(size_bytes: int, counts: tuple[int, ...]) -> Bandwidth:
        calls.append(size_bytes)
        return Bandwidth(((1, 5.0),), size_bytes, is_final=len(calls) > 1)

    monkeypatch.setattr(bandwidth, "_measure", fake)
    monkeypatch.setattr(bandwidth, "smt_ratio", lambda *_: None)
    machine = replace(small(probe()), fingerprint="f")
    assert not measure_bandwidth(machine, tmp_path).is_final
    assert measure_bandwidth(machine, tmp_path).is_final
    measure_bandwidth(machine, tmp_path)
    assert len(calls) == 2
    (tmp_path / "bandwidth-f.json").write_text("{")
    measure_bandwidth(machine, tmp_path)
    assert len(calls) == 3


def test_a_cache_folder_that_cannot_be_made_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bandwidth, "_measure", lambda size, counts: Bandwidth(((1, 5.0),), size))
    monkeypatch.setattr(bandwidth, "smt_ratio", lambda *_: 1.2)
    (tmp_path / "file").write_text("")
    machine = replace(small(probe()), topology=replace(probe().topology, threads_per_core=1))
    found = measure_bandwidth(machine, tmp_path / "file")
    assert found.notes == ("two CPUs do only 1.20 times the work of one: cores may be hidden SMT siblings",)


def test_without_numpy_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    with pytest.raises(ProbeError, match="without numpy"):
        measure_bandwidth(small(probe()))


def test_pairs_of_different_cores_that_may_share_one() -> None:
    assert smt.candidate_pairs([[0], [1], [2], [3]], [0, 1, 2, 3]) == ((0, 1), (0, 2))
    assert smt.candidate_pairs([[0, 1], [2, 3]], [0, 1, 2, 3]) == ((0, 2),)
    assert smt.candidate_pairs([[0, 1], [2, 3]], [1, 3]) == ((1, 3),)
    assert smt.candidate_pairs([[0, 1]], [0, 1]) == smt.candidate_pairs([], []) == ()


def test_the_weakest_pair_counts_with_its_best_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {(0,): 100.0, (0, 1): 120.0, (0, 2): 195.0}
    monkeypatch.setattr(smt, "_work_done", lambda cpus: rates[tuple(cpus)])
    assert smt.smt_ratio([[0], [1], [2], [3]], [0, 1, 2, 3]) == 1.2
    assert smt.smt_ratio([[0]], [0]) is None


def test_the_caller_s_affinity_stays() -> None:
    before = os.sched_getaffinity(0)
    cpus = sorted(before)
    ratio = smt.smt_ratio([[cpu] for cpu in cpus], cpus)
    assert os.sched_getaffinity(0) == before
    assert ratio is None if len(cpus) < 2 else ratio is None or ratio > 0
    assert smt.smt_ratio([[4000], [4001]], [4000, 4001]) is None
