"""Models in the store: one name for the same weights, and no variant that could not be opened."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from probes.machine import probe
from profiles.store import Store
from tests.support.flow import Flow
from tests.support.tiny import write_tiny_model
from tuner.errors import ModelFileError, UsageError
from tuner.narrowing import searched_variants
from tuner.setup import add_model, choose_model, open_workshop
from tuner.workshop import Workshop


@pytest.fixture
def flow(flow: Flow, tmp_path: Path) -> Flow:
    """With a model file of this test's own."""
    folder = tmp_path / "models"
    folder.mkdir()
    flow.model = Path(shutil.copy(flow.model, folder / "tiny.gguf"))
    return flow


@pytest.fixture
def copy(flow: Flow, tmp_path: Path) -> Path:
    """The same weights under another name."""
    return Path(shutil.copy(flow.model, tmp_path / "copy.gguf"))


def names(store: Store) -> dict[str, str]:
    return {record.name: record.source for record in store.models()}


def test_the_same_weights_under_another_path_keep_their_name(flow: Flow, copy: Path) -> None:
    with flow.store() as store:
        add_model(store, flow.home, str(flow.model), "mine", refresh=True)
        _, model = choose_model(store, flow.home, str(copy))
        assert model.name == "mine"
        # Searching a copy once does not make it the model's home.
        assert names(store) == {"mine": str(flow.model)}
        assert choose_model(store, flow.home, "mine")[1] == model


def test_adding_a_copy_moves_the_source_and_keeps_the_name(flow: Flow, copy: Path) -> None:
    with flow.store() as store:
        add_model(store, flow.home, str(flow.model), None, refresh=True)
        flow.model.unlink()
        with pytest.raises(ModelFileError, match="does not exist"):
            choose_model(store, flow.home, "tiny")
        _, model = add_model(store, flow.home, str(copy), None, refresh=True)
        assert names(store) == {"tiny": str(copy)}
        assert choose_model(store, flow.home, "tiny")[1] == model


def test_a_second_name_for_the_same_weights_is_refused_with_the_first(flow: Flow, copy: Path) -> None:
    with flow.store() as store:
        add_model(store, flow.home, str(flow.model), None, refresh=True)
        with pytest.raises(
            UsageError, match=r"copy\.gguf holds the weights that are registered as 'tiny' already"
        ):
            add_model(store, flow.home, str(copy), "second", refresh=True)
        assert names(store) == {"tiny": str(flow.model)}


def test_a_changed_file_is_another_model_of_the_same_name(flow: Flow) -> None:
    with flow.store() as store:
        _, before = add_model(store, flow.home, str(flow.model), None, refresh=True)
        write_tiny_model(flow.model, weight=0.03)
        _, after = choose_model(store, flow.home, "tiny")
        assert after.digest != before.digest
        assert sorted(names(store)) == ["tiny", f"tiny@{before.digest[:12]}"]


@pytest.fixture
def cramped(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    """A workshop with memory for q4_0, and no more; what it says is in the flow's events."""
    with flow.store() as store:
        shop = open_workshop(flow.request(), probe(), store, flow.home, flow.events.append)
        sizes = {r.label: r.estimated_bytes for r in shop.engine("simulated").recipes(shop.model)}
        # The tiny file is f32: a real one is smaller than what is made of it.
        shop.model = replace(shop.model, file_bytes=sizes["q4_0"])
        monkeypatch.setattr("tuner.narrowing.kv_cache_bytes", lambda _model, _workload: 0)
        effective = replace(shop.machine.effective, memory_bytes=sizes["q4_0"])
        shop.machine = replace(shop.machine, effective=effective)
        yield shop
        shop.close()


def test_a_variant_that_does_not_fit_into_memory_is_left_out(flow: Flow, cramped: Workshop) -> None:
    kept = searched_variants(flow.request(), cramped, cramped.engine("simulated"))
    assert kept == ("source", "q4_0")
    assert flow.events[-2].message.startswith("left out: bf16 needs ")
    assert flow.events[-1].message.startswith("left out: q8_0 needs ")


def test_what_does_not_fit_into_memory_is_never_made(cramped: Workshop) -> None:
    with pytest.raises(ModelFileError, match=r"bf16 of tiny is not made: it needs \d+ MiB of memory"):
        cramped.variant("simulated", "bf16")
    assert not list(cramped.home.variants.glob("*"))


def test_nothing_is_ever_written_beside_the_users_file(flow: Flow) -> None:
    before = {entry.name: entry.stat().st_mtime_ns for entry in flow.model.parent.iterdir()}
    flow.search(trials=3)
    assert {entry.name: entry.stat().st_mtime_ns for entry in flow.model.parent.iterdir()} == before
    assert list(flow.home.variants.glob("*.gguf"))
