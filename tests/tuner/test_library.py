"""Models pulled into the data folder and removed again: nobody else's file is ever touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from profiles.errors import NotFoundError
from profiles.records import StudyStatus
from profiles.store import Store, owner_token
from tests.profiles.store_examples import MACHINE, PROFILE, SPEC
from tests.support.folders import write_huggingface
from tests.support.tiny import write_tiny_model
from tuner import library
from tuner.errors import BusyError, ModelFileError, UsageError
from tuner.home import Home
from tuner.library import pull, remove
from tuner.models.source import Source
from tuner.setup import add_model, choose_model, prepare_variants


@pytest.fixture
def place(home: Path) -> Home:
    return Home(home)


@pytest.fixture
def store(place: Home) -> Iterator[Store]:
    with Store.open(place.database) as opened:
        yield opened


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "mine.gguf")


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_pull_copies_and_registers_the_copy(store: Store, place: Home, own: Path) -> None:
    found, model = pull(store, place, str(own), None)
    assert found.path.is_relative_to(place.models / "pulled")
    assert found.path.read_bytes() == own.read_bytes()
    assert not os.path.samefile(found.path, own)
    assert (model.name, store.model("mine").source) == ("mine", str(found.path))
    own.unlink()
    assert choose_model(store, place, "mine")[1].digest == model.digest


def test_pull_again_copies_nothing(store: Store, place: Home, own: Path) -> None:
    first, _ = pull(store, place, str(own), None)
    before = first.path.stat()
    again, _ = pull(store, place, str(own), None)
    assert again.path.stat().st_mtime_ns == before.st_mtime_ns
    assert len(store.models()) == 1


def test_the_same_weights_from_another_file_are_pulled_once(
    store: Store, place: Home, own: Path, tmp_path: Path
) -> None:
    first, _ = pull(store, place, str(own), None)
    again, model = pull(store, place, str(shutil.copy(own, tmp_path / "other.gguf")), None)
    assert (again.path, model.name) == (first.path, "mine")
    assert files_in(place.models / "pulled") == [str(first.path.relative_to(place.models / "pulled"))]


def test_two_pulls_at_once_both_succeed(
    store: Store, place: Home, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring = library._bring

    def meanwhile(path: Path, target: Path, *, is_ours: bool) -> None:
        monkeypatch.setattr(library, "_bring", bring)
        pull(store, place, str(own), None)
        bring(path, target, is_ours=is_ours)

    monkeypatch.setattr(library, "_bring", meanwhile)
    found, _ = pull(store, place, str(own), None)
    assert files_in(place.models / "pulled") == [str(found.path.relative_to(place.models / "pulled"))]


def test_pull_takes_the_place_of_what_was_added(store: Store, place: Home, own: Path) -> None:
    add_model(store, place, str(own), "m", refresh=True)
    found, model = pull(store, place, str(own), "m")
    assert (model.name, store.model("m").source) == ("m", str(found.path))
    with pytest.raises(UsageError, match="registered as 'm' already"):
        pull(store, place, str(own), "other")


def test_a_folder_is_pulled_whole_and_removed_again(store: Store, place: Home, tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "mine")
    found, model = pull(store, place, str(folder), None)
    assert found.path.parent == place.models / "pulled"
    assert files_in(found.path) == files_in(folder)
    assert (model.name, model.format, store.model("mine").source) == ("mine", "huggingface", str(found.path))
    assert len(remove(store, place, "mine").files) == len(files_in(folder))
    assert not found.path.exists()
    assert folder.exists()


def test_pull_of_a_split_model_takes_all_parts(place: Home, own: Path, tmp_path: Path) -> None:
    parts = [tmp_path / f"big-0000{n}-of-00002.gguf" for n in (1, 2)]
    source = Source(str(parts[0]), "big", tuple(parts), 2 * own.stat().st_size)
    for part in parts:
        shutil.copy(own, part)
    library._copy(source, place.models / "pulled" / "x")
    assert files_in(place.models / "pulled") == [f"x/{part.name}" for part in parts]


def test_a_download_gets_a_second_name_instead_of_a_copy(place: Home, own: Path) -> None:
    source = Source("hf:o/r:mine.gguf", "mine", (own,), own.stat().st_size)
    library._copy(source, place.models / "pulled" / "x")
    assert os.path.samefile(place.models / "pulled" / "x" / "mine.gguf", own)


def test_pull_without_room_leaves_nothing(
    store: Store, place: Home, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(own.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1 << 20))
    with pytest.raises(ModelFileError, match=r"no room for mine of 0 MiB: the disk of .* has 1 MiB free"):
        pull(store, place, str(own), None)
    assert (store.models(), files_in(place.models / "pulled")) == ((), [])


def test_d06_pull_onto_a_full_disk_leaves_nothing(
    store: Store, place: Home, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_source: Path, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(ModelFileError, match=r"can't be copied to .*: No space left on device"):
        pull(store, place, str(own), None)
    assert (store.models(), files_in(place.models / "pulled")) == ((), [])


def test_remove_deletes_what_was_pulled(store: Store, place: Home, own: Path) -> None:
    found, _ = pull(store, place, str(own), None)
    removed = remove(store, place, "mine")
    assert removed.files == (str(found.path),)
    assert (removed.freed_bytes, removed.kept_file, removed.in_history) == (own.stat().st_size, None, False)
    assert own.exists()
    assert (store.models(), files_in(place.models / "pulled")) == ((), [])
    with pytest.raises(NotFoundError, match="no model 'mine'"):
        remove(store, place, "mine")


def test_remove_never_touches_a_users_file_but_deletes_the_variants(
    store: Store, place: Home, own: Path
) -> None:
    add_model(store, place, str(own), None)
    prepare_variants(place, "mine", ("simulated",), ("q8_0", "q4_0"), lambda _: None)
    other = place.variants / "of-another-model.gguf"
    other.write_bytes(b"x")
    made = [path for path in place.variants.glob("*.gguf") if path != other]
    assert len(made) >= 2
    removed = remove(store, place, "mine")
    assert sorted(removed.files) == sorted(map(str, made))
    assert removed.kept_file == str(own)
    assert own.exists()
    assert list(place.variants.glob("*.gguf")) == [other]


def test_remove_leaves_a_file_inside_the_data_folder_alone(store: Store, place: Home, own: Path) -> None:
    nearby = place.models / "mine.gguf"
    nearby.parent.mkdir(parents=True)
    shutil.copy(own, nearby)
    add_model(store, place, str(nearby), None)
    assert remove(store, place, "mine").files == ()
    assert nearby.exists()


def test_the_history_stays_and_counts_again(store: Store, place: Home, own: Path) -> None:
    _, model = add_model(store, place, str(own), None)
    store.save_machine(MACHINE, "host")
    study = store.open_study(replace(SPEC, model_digest=model.digest), owner_token())
    with pytest.raises(BusyError, match=f"mine is in use by the search {study.id}"):
        remove(store, place, "mine")
    store.finish_study(study.id, StudyStatus.CONFIRMED)
    published = store.publish(replace(PROFILE, model_digest=model.digest, study_id=study.id))
    assert remove(store, place, "mine").in_history
    assert store.models() == ()
    assert store.profile(published.id).model_digest == model.digest
    assert store.model(model.digest).name == f"mine@{model.digest[:12]}"
    with pytest.raises(ModelFileError, match="no model 'mine' is registered"):
        choose_model(store, place, "mine")
    add_model(store, place, str(own), None)
    assert [record.name for record in store.models()] == ["mine"]
