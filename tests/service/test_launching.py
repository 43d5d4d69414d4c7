"""How many conversations are kept: as many as may run, or as the memory holds."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probes.machine import Machine, probe
from profiles.store import Store
from profiles.vocabulary import Config, Role, Setting
from service.generator.launching import Serving, serving_of, size_bytes
from service.settings import settings_from
from tests.support.tiny import write_tiny_model
from tuner.engines.base import Dimension, Scope
from tuner.engines.simulated.describe import Simulated
from tuner.errors import UsageError
from tuner.events import Event
from tuner.home import Home
from tuner.narrowing import kv_token_bytes
from tuner.setup import add_model

CONTEXT = 4096


@pytest.fixture
def machine() -> Machine:
    return probe()


def served(home: Path, model: Path, machine: Machine, notes: list[str], **settings: object) -> Serving:
    def note(event: Event) -> None:
        notes.append(event.message)

    with closing(Store.open(Home(home).database)) as store:
        return serving_of(
            settings_from(engine="simulated", model=str(model), **settings), store, machine, Home(home), note
        )


@pytest.fixture
def each(home: Path, tmp_path: Path) -> int:
    """Bytes of one conversation's KV cache."""
    with closing(Store.open(Home(home).database)) as store:
        _source, info = add_model(store, Home(home), str(write_tiny_model(tmp_path / "tiny.gguf")), None)
    return CONTEXT * kv_token_bytes(info)


def test_g15_the_kept_caches_fit_into_the_memory_that_is_allowed(
    home: Path, tmp_path: Path, machine: Machine, each: int
):
    model, notes = tmp_path / "tiny.gguf", list[str]()
    assert served(home, model, machine, notes, parallel=6).streams == 6
    allowed = 3 * each >> 20
    found = served(home, model, machine, notes, parallel=64, kv_mib=max(1, allowed))
    assert found.streams == max(1, allowed) * 2**20 // each
    assert any("requests at a time, not 64" in note for note in notes)
    room = 2 * model.stat().st_size + 2 * 5 * each
    small = replace(machine, effective=replace(machine.effective, memory_bytes=room))
    assert served(home, model, small, notes, parallel=64).streams == 5


def test_where_not_one_conversation_fits_that_is_said(
    home: Path, tmp_path: Path, machine: Machine, each: int
):
    room = (tmp_path / "tiny.gguf").stat().st_size + each
    small = replace(machine, effective=replace(machine.effective, memory_bytes=room))
    with pytest.raises(UsageError, match="lower --context-tokens"):
        served(home, tmp_path / "tiny.gguf", small, [])


def test_beside_another_worker_threads_are_for_half_of_the_cpus(
    home: Path, tmp_path: Path, machine: Machine, each: int
):
    del each
    eight = replace(machine, effective=replace(machine.effective, cpu_count=8, cpus=tuple(range(8))))
    found = served(home, tmp_path / "tiny.gguf", eight, [])
    threads: dict[str, Setting] = {
        name: found.run_settings[name] for name in ("n_threads", "n_threads_batch")
    }
    shared = {name: found.shared_settings[name] for name in threads}
    assert shared == {name: min(4, int(value)) for name, value in threads.items()}
    assert {**found.run_settings, **shared} == found.shared_settings


def test_a_model_in_parts_takes_what_all_of_them_take(tmp_path: Path):
    for number, size in ((1, 3), (2, 5)):
        (tmp_path / f"m-0000{number}-of-00002.gguf").write_bytes(b"x" * size)
    assert size_bytes(tmp_path / "m-00001-of-00002.gguf") == 8
    assert size_bytes(tmp_path) == 8


def test_what_only_a_new_process_can_change_is_served_as_it_was_measured(
    home: Path, tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    """A bench gives such settings to the load; a service that leaves them out serves something else."""
    pool = Dimension("pool", (3,), 3, Scope.PROCESS, Role.PLACEMENT)
    dimensions, default = Simulated.dimensions, Simulated.default

    def widened(engine: Simulated, *about: Any) -> Config:
        return default(engine, *about).with_settings(pool=3)

    monkeypatch.setattr(Simulated, "dimensions", lambda engine, *about: (*dimensions(engine, *about), pool))
    monkeypatch.setattr(Simulated, "default", widened)
    found = served(home, write_tiny_model(tmp_path / "tiny.gguf"), machine, [])
    assert found.load_settings["pool"] == 3
    assert "pool" not in found.run_settings
