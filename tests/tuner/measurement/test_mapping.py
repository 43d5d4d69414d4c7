"""A model file that can't be loaded one way is loaded the other way, and its user hears of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, TrialStatus, Workload
from tests.support.mapped import HANGS, MappedEngine
from tuner.errors import WorkerError
from tuner.events import Event
from tuner.measurement.isolation import Deadlines
from tuner.measurement.mapping import PatientBench
from tuner.measurement.pagecache import cached_share

HASTY = Deadlines(start_s=30.0, load_s=0.5, progress_s=0.2, run_s=20.0)
ENGINE = MappedEngine()


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def bench(
    machine: Machine,
    model: ModelInfo,
    workload: Workload,
    path_of: Callable[[Config], Path],
    tmp_path: Path,
    told: list[Event],
) -> Iterator[PatientBench]:
    with PatientBench(
        machine,
        model,
        workload,
        lambda _name: ENGINE,
        path_of,
        seed=1,
        log_directory=tmp_path / "logs",
        deadlines=HASTY,
        observer=told.append,
    ) as made:
        yield made


@pytest.fixture
def default(machine: Machine, model: ModelInfo, workload: Workload) -> Config:
    return ENGINE.default(machine, model, workload)


def test_m12_a_load_that_hangs_is_tried_once_more_with_mmap_turned(
    bench: PatientBench, default: Config, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HANGS, "mapped")
    measured = bench.measure(default, rounds=1)
    assert (measured.requested["mmap"], measured.effective["mmap"]) == (False, False)
    assert bench.as_loaded(default) == default.with_settings(mmap=False)
    (event,) = told
    assert "no answer to 'load' within" in event.message
    assert "it loads with mmap=false, and so does all that follows" in event.message
    # It is not tried mapped again: that would take the deadline once a variant.
    bench.measure(replace(default, variant="q4_0"), rounds=1)
    assert len(told) == 1


def test_m12_where_no_way_loads_both_are_named(
    bench: PatientBench, default: Config, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HANGS, "mapped read")
    with pytest.raises(
        WorkerError, match=r"no answer to 'load' .*; nor did it run with mmap=false: no"
    ) as lost:
        bench.measure(default, rounds=1)
    assert lost.value.status is TrialStatus.LOAD_TIMEOUT
    assert bench.as_loaded(default) == default
    assert told == []


def test_m12_other_failures_of_a_load_are_not_retried(
    bench: PatientBench, default: Config, set_faults: Callable[..., None], told: list[Event]
) -> None:
    set_faults({"*": "refuse_on_load"})
    with pytest.raises(WorkerError) as lost:
        bench.measure(default, rounds=1)
    assert lost.value.status is TrialStatus.ENGINE_ERROR
    assert bench.as_loaded(default) == default


def test_e18_a_round_notes_whether_its_file_was_in_the_page_cache(
    bench: PatientBench, default: Config, path_of: Callable[[Config], Path]
) -> None:
    path_of(default).read_bytes()
    measured = bench.measure(default, rounds=2)
    assert [samples.facts["file_cached"] for samples in measured.rounds] == [1.0, 1.0]


def test_e18_the_page_cache_is_asked_without_filling_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 << 20))
    assert cached_share(path) == 1.0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    first = cached_share(path)
    if first == 1.0:
        pytest.skip("files here can't leave memory")
    assert first == cached_share(path)
    path.read_bytes()
    assert cached_share(path) == 1.0
    assert cached_share(tmp_path / "none") is None
    (tmp_path / "empty").touch()
    assert cached_share(tmp_path / "empty") is None
