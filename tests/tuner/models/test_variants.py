"""The cache of variants, with makers that do what a maker can do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from profiles.vocabulary import ModelInfo
from tuner import engines
from tuner.engines.base import SOURCE, Engine, Recipe
from tuner.errors import ModelFileError
from tuner.events import Event
from tuner.models.source import DEMO, Source, model_info, resolve
from tuner.models.variants import Variant, VariantCache

MakeGguf = Callable[..., Path]
BUILD = "test build 1"

# Each maker notes that it ran, beside the target's folder.
MAKER = """
import os, shutil, signal, sys, time
from pathlib import Path
source, target, parameters = sys.argv[1:]
with open(Path(target).parent.parent / "runs", "a") as runs:
    runs.write("x")
def copy(): shutil.copyfile(source, target)
def fail(): sys.exit("line one\\nno such tensor type")
def hang(): copy(); time.sleep(60)
def crash(): copy(); os.kill(os.getpid(), signal.SIGSEGV)
def nothing(): pass
def half(): Path(target).write_bytes(Path(source).read_bytes()[:5000])
{action}()
"""


@dataclass
class Maker:
    """As much of an engine as the cache asks for."""

    module: str
    name: str = "fake"

    def maker(self) -> str:
        return self.module


@dataclass
class World:
    root: Path
    source: Source
    model: ModelInfo

    @property
    def folder(self) -> Path:
        return self.root / "variants"

    @property
    def runs(self) -> int:
        path = self.root / "runs"
        return len(path.read_text()) if path.exists() else 0

    def ensure(
        self,
        cache: VariantCache,
        label: str = "q8_0",
        action: str = "copy",
        build: str = BUILD,
        **options: object,
    ) -> Variant:
        (self.root / f"maker_{action}.py").write_text(MAKER.replace("{action}", action))
        recipe = Recipe(label, (("file_type", label),), self.source.file_bytes)
        return cache.ensure(
            cast("Engine", Maker(f"maker_{action}")),
            self.source,
            self.model,
            recipe,
            build=build,
            deadline_s=float(cast("float", options.get("deadline_s", 30.0))),
            on_event=cast("Callable[[Event], None]", options.get("on_event", lambda event: None)),
        )


@pytest.fixture
def world(make_gguf: MakeGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    source = resolve(str(make_gguf()))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return World(tmp_path, source, model_info(source, cache=tmp_path))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith(".lock"))


def test_a_variant_is_made_once(world: World) -> None:
    events: list[Event] = []
    with VariantCache(world.folder) as cache:
        first = world.ensure(cache, on_event=events.append)
    with VariantCache(world.folder) as cache:
        again = world.ensure(cache, on_event=events.append)
    assert first == again
    assert world.runs == 1
    assert [event.message.partition(" in ")[0] for event in events] == ["made q8_0 of tiny"]
    assert first.path.parent == world.folder
    assert (first.label, first.bits_per_weight, first.file_bytes) == ("q8_0", 32.0, world.source.file_bytes)
    assert names(world.folder) == [first.path.name]


def test_the_source_is_used_where_it_lies(world: World) -> None:
    with VariantCache(world.folder) as cache:
        variant = cache.ensure(
            cast("Engine", Maker("none")),
            world.source,
            world.model,
            Recipe(SOURCE),
            build=BUILD,
            deadline_s=1.0,
        )
    assert variant.path == world.source.path
    assert not world.folder.exists()


def test_another_build_recipe_or_source_is_another_file(world: World) -> None:
    with VariantCache(world.folder) as cache:
        paths = {
            world.ensure(cache).path,
            world.ensure(cache, build="test build 2").path,
            world.ensure(cache, label="q4_0").path,
        }
        world.model = replace(world.model, digest="other")
        paths.add(world.ensure(cache).path)
    assert len(paths) == 4


def test_equal_tensor_types_are_one_variant(world: World) -> None:
    with VariantCache(world.folder) as cache:
        variants = [world.ensure(cache, label=label) for label in ("q8_0", "q6_k")]
    assert variants[0].digest == variants[1].digest


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("fail", "fake cannot make q8_0 of tiny: no such tensor type"),
        ("crash", "fake cannot make q8_0 of tiny: SIGSEGV"),
        ("nothing", "the maker wrote no file"),
        ("half", "is truncated: tensor"),
    ],
)
def test_a_failed_maker_leaves_nothing(world: World, action: str, expected: str) -> None:
    with VariantCache(world.folder) as cache:
        with pytest.raises(ModelFileError) as caught:
            world.ensure(cache, action=action)
        assert expected in str(caught.value)
        assert names(world.folder) == []
        assert world.ensure(cache).label == "q8_0"


def test_a_slow_maker_is_killed_at_its_deadline(world: World) -> None:
    with VariantCache(world.folder) as cache, pytest.raises(ModelFileError, match="not done after 1 s"):
        world.ensure(cache, action="hang", deadline_s=1.0)
    assert names(world.folder) == []


def test_leftovers_of_killed_makers_are_removed(world: World) -> None:
    world.folder.mkdir()
    (world.folder / "0123abc.4711.partial").write_bytes(b"half")
    with VariantCache(world.folder) as cache:
        made = world.ensure(cache)
    assert names(world.folder) == [made.path.name]


def test_the_least_recently_used_goes_first(world: World) -> None:
    cap = int(world.source.file_bytes * 2.5)
    paths = []
    for age, label in enumerate(("q8_0", "q4_0", "q6_k")):
        with VariantCache(world.folder, cap) as cache:
            paths.append(world.ensure(cache, label=label).path)
            os.utime(paths[-1], (age, age))
        if label == "q4_0":
            with VariantCache(world.folder, cap) as cache:
                world.ensure(cache, label="q8_0")
    assert [path.exists() for path in paths] == [True, False, True]


def test_what_is_in_use_is_never_dropped(world: World) -> None:
    cap = int(world.source.file_bytes * 1.5)
    with VariantCache(world.folder, cap) as user, VariantCache(world.folder, cap) as other:
        used = world.ensure(user)
        with pytest.raises(ModelFileError, match="no room for q4_0"):
            world.ensure(other, label="q4_0")
        assert used.path.exists()
        user.close()
        world.ensure(other, label="q4_0")
        assert not used.path.exists()


def test_a_full_disk_is_told_before_anything_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1 << 20

    monkeypatch.setattr("tuner.models.variants.shutil.disk_usage", lambda _path: Usage)
    with (
        VariantCache(world.folder) as cache,
        pytest.raises(ModelFileError, match=r"the disk of .* has 1 MiB free"),
    ):
        world.ensure(cache)
    assert world.runs == 0


def test_an_unusable_folder_is_one_line(world: World) -> None:
    (world.root / "file").write_text("")
    with (
        VariantCache(world.root / "file" / "below") as cache,
        pytest.raises(ModelFileError, match="cannot use the cache"),
    ):
        world.ensure(cache)


def test_two_at_once_make_it_once(world: World) -> None:
    made: list[Path] = []

    def ensure() -> None:
        with VariantCache(world.folder) as cache:
            made.append(world.ensure(cache).path)

    threads = [threading.Thread(target=ensure) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3
    assert len(set(made)) == 1
    assert world.runs == 1


@pytest.mark.real
def test_llama_cpp_makes_real_variants(tmp_path: Path) -> None:
    source = resolve(DEMO)
    model = model_info(source, cache=tmp_path)
    engine = engines.get("llama_cpp")
    with VariantCache(tmp_path / "variants") as cache:
        made = [
            cache.ensure(engine, source, model, recipe, build=BUILD, deadline_s=120.0)
            for recipe in engine.recipes(model)
            if recipe.label in ("source", "q8_0", "q6_k")
        ]
    assert [max(variant.tensor_mix, key=lambda pair: pair[1])[0] for variant in made] == [
        "q4_1",
        "q8_0",
        "q8_0",
    ]
    assert made[0].path == source.path
    assert len({variant.digest for variant in made}) == 3
    assert [round(variant.bits_per_weight, 2) for variant in made] == [5.74, 8.51, 8.12]
