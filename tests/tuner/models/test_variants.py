"""The cache of variants, with makers that do what a maker can do."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

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
        runs = world.runs
        with pytest.raises(ModelFileError, match=re.escape(str(caught.value))):
            world.ensure(cache)
        assert world.runs == runs
    with VariantCache(world.folder) as another:
        assert world.ensure(another).label == "q8_0"


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

    monkeypatch.setattr("tuner.models.shelf.shutil.disk_usage", lambda _path: Usage)
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


# A maker of folders notes its step, and what it was made from.
FOLDER_MAKER = """
import json, sys
from pathlib import Path
source, target, parameters = sys.argv[1:]
step = json.loads(parameters)["step"]
with open(Path(target).parent.parent / "runs", "a") as runs:
    runs.write(step)
if step == "broken":
    sys.exit("no such operator")
Path(target).mkdir()
(Path(target) / "model.safetensors").write_bytes(bytes(1000))
(Path(target) / "of").write_text(step + " of " + Path(source).name)
"""


@dataclass
class Chain:
    """Steps to folders, as two engines ask for them."""

    world: World

    def step(self, name: str, before: Recipe | None = None, **options: Any) -> Recipe:
        given = {"maker": "folder_maker", "estimated_bytes": 1000, "format": "onnx", **options}
        return Recipe(name, (("step", name),), made_from=before, **given)

    def ensure(self, cache: VariantCache, recipe: Recipe, engine: str = "fake", **options: Any) -> Variant:
        (self.world.root / "folder_maker.py").write_text(FOLDER_MAKER)
        return cache.ensure(
            cast("Engine", Maker("folder_maker", engine)),
            self.world.source,
            self.world.model,
            recipe,
            **{"build": BUILD, "deadline_s": 30.0, **options},
        )

    @property
    def runs(self) -> str:
        path = self.world.root / "runs"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def chain(world: World) -> Chain:
    return Chain(world)


def test_steps_are_made_in_order_and_shared(chain: Chain) -> None:
    events: list[Event] = []
    first = chain.step("a")
    with VariantCache(chain.world.folder) as cache:
        made = chain.ensure(cache, chain.step("b", first), on_event=events.append)
        other = chain.ensure(cache, chain.step("c", first), engine="other", build="another build")
    assert chain.runs == "abc"
    assert made.path.suffix == ".onnx"
    assert (made.path / "of").read_text().startswith("b of ")
    assert (other.path / "of").read_text() == (made.path / "of").read_text().replace("b of", "c of")
    assert [event.message.partition(" in ")[0] for event in events] == [
        "making a of tiny", "made a of tiny", "making b of tiny", "made b of tiny",
    ]  # fmt: skip


def test_what_is_there_needs_no_earlier_step(chain: Chain) -> None:
    recipe = chain.step("b", chain.step("a"))
    with VariantCache(chain.world.folder) as cache:
        made = chain.ensure(cache, recipe)
    with VariantCache(chain.world.folder) as cache:
        before = cache.path(cast("Engine", Maker("x")), chain.world.model, recipe.chain[0], BUILD)
        assert cache.drop(before)
        assert not before.exists()
        assert chain.ensure(cache, recipe) == made
    assert chain.runs == "ab"


def test_a_step_that_fails_is_tried_once_for_all_that_need_it(chain: Chain) -> None:
    broken = chain.step("broken")
    with VariantCache(chain.world.folder) as cache:
        for name in ("b", "c"):
            with pytest.raises(ModelFileError, match="cputune cannot make broken of tiny: no such operator"):
                chain.ensure(cache, chain.step(name, broken))
        assert chain.ensure(cache, chain.step("d")).label == "d"
    assert chain.runs == "brokend"
    assert len(names(chain.world.folder)) == 1


def test_a_package_that_a_maker_lacks_is_named_before_anything_runs(chain: Chain) -> None:
    first = chain.step("a", needs=("no-such-package", "numpy"))
    recipe = chain.step("b", first)
    engine = cast("Engine", Maker("x"))
    with VariantCache(chain.world.folder) as cache:
        assert cache.lacking(engine, chain.world.model, recipe, BUILD) == (
            "b can't be made: no-such-package not installed: pip install no-such-package"
        )
        with pytest.raises(ModelFileError, match="a of tiny can't be made: no-such-package not installed"):
            chain.ensure(cache, recipe)
        chain.ensure(cache, replace(recipe, made_from=replace(first, needs=())))
        # What has been made before needs no maker.
        assert cache.lacking(engine, chain.world.model, recipe, BUILD) is None
    assert chain.runs == "ab"


def test_equal_folders_are_one_variant(chain: Chain) -> None:
    with VariantCache(chain.world.folder) as cache:
        one = chain.ensure(cache, chain.step("a"))
        # Another key, the same content.
        two = chain.ensure(cache, replace(chain.step("a"), maker=None), engine="other")
    assert one.path != two.path
    assert one.digest == two.digest
    assert one.bits_per_weight == pytest.approx(8000 / chain.world.model.parameter_count)


def test_a_folder_in_use_is_never_dropped_and_goes_whole(chain: Chain) -> None:
    with VariantCache(chain.world.folder) as cache:
        made = chain.ensure(cache, chain.step("a"))
        with VariantCache(chain.world.folder) as other:
            assert not other.drop(made.path)
            cache.close()
            assert other.drop(made.path)
    assert names(chain.world.folder) == []


def test_leftover_folders_of_killed_makers_are_removed(chain: Chain) -> None:
    left = chain.world.folder / "0123abc.4711.partial"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"half")
    with VariantCache(chain.world.folder) as cache:
        made = chain.ensure(cache, chain.step("a"))
    assert names(chain.world.folder) == [made.path.name]


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
