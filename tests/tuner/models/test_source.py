"""Finding a model by what a user types."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import ModelFileError
from tuner.models import source as module
from tuner.models.source import digest, model_info, resolve

MakeGguf = Callable[..., Path]


def test_a_path(make_gguf: MakeGguf, tmp_path: Path) -> None:
    path = make_gguf("some.model.gguf")
    found = resolve(str(path))
    assert (found.name, found.path, found.file_bytes) == ("some.model", path, path.stat().st_size)
    info = model_info(found, cache=tmp_path)
    assert info.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_missing_path() -> None:
    with pytest.raises(ModelFileError, match=r"nowhere/x\.gguf does not exist"):
        resolve("nowhere/x.gguf")


@pytest.fixture
def parts(make_gguf: MakeGguf) -> list[Path]:
    return [
        make_gguf(f"big-{number + 1:05d}-of-00003.gguf", extra={"split.count": 3, "split.no": number})
        for number in range(3)
    ]


@pytest.mark.parametrize("given", [0, 1, 2])
def test_m05_any_part_stands_for_the_model(parts: list[Path], tmp_path: Path, given: int) -> None:
    found = resolve(str(parts[given]))
    assert (found.name, found.paths, found.path) == ("big", tuple(parts), parts[0])
    assert found.file_bytes == sum(part.stat().st_size for part in parts)
    assert model_info(found, cache=tmp_path).file_bytes == found.file_bytes


def test_m05_missing_parts_are_named(parts: list[Path]) -> None:
    parts[1].unlink()
    with pytest.raises(ModelFileError, match=r"lacks 1 of the model's 3 parts: big-00002-of-00003\.gguf"):
        resolve(str(parts[0]))


def test_m05_a_wrong_total_is_refused(make_gguf: MakeGguf, tmp_path: Path) -> None:
    path = make_gguf("big-00001-of-00001.gguf", extra={"split.count": 2, "split.no": 0})
    with pytest.raises(ModelFileError, match="says it is part 1 of 2"):
        model_info(resolve(str(path)), cache=tmp_path)


def test_m05_one_of_one_is_complete(make_gguf: MakeGguf, tmp_path: Path) -> None:
    path = make_gguf("small-00001-of-00001.gguf", extra={"split.count": 1})
    assert model_info(resolve(str(path)), cache=tmp_path).name == "small"


def test_m05_joined_parts_are_refused(parts: list[Path], tmp_path: Path) -> None:
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    with pytest.raises(ModelFileError, match="keep the parts as separate files"):
        model_info(resolve(str(joined)), cache=tmp_path)


def test_a_package_is_located_without_importing_it(
    make_gguf: MakeGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a_model_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    os.replace(make_gguf(), folder / "m.gguf")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve("package:a_model_package/m.gguf").path == folder / "m.gguf"
    assert "a_model_package" not in sys.modules
    with pytest.raises(ModelFileError, match=r"has no file other\.gguf"):
        resolve("package:a_model_package/other.gguf")


def test_a_package_puts_its_model_together_once(
    make_gguf: MakeGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_gguf()
    (tmp_path / "in_parts").mkdir()
    (tmp_path / "in_parts" / "__init__.py").write_text(
        "from pathlib import Path\n"
        f"whole, runs = Path({str(whole)!r}), Path({str(tmp_path / 'runs')!r})\n"
        "def assemble(path):\n"
        "    path.write_bytes(whole.read_bytes())\n"
        "    runs.write_text((runs.read_text() if runs.exists() else '') + 'x')\n"
    )
    (tmp_path / "in_pieces").mkdir()
    (tmp_path / "in_pieces" / "__init__.py").write_text(
        "def assemble(path):\n    path.write_bytes(b'half')\n    raise ValueError('a part\\nis missing')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        found = resolve("package:in_parts", cache=tmp_path / "cache")
        assert (found.name, found.path.read_bytes()) == ("in_parts", whole.read_bytes())
    assert (tmp_path / "runs").read_text() == "x"
    with pytest.raises(ModelFileError, match="can't put its model together: a part is missing"):
        resolve("package:in_pieces", cache=tmp_path / "cache")
    assert [entry.name for entry in (tmp_path / "cache" / "packages").iterdir()] == ["in_parts.gguf"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("package:no_such_package_here/m.gguf", "no package 'no_such_package_here' is installed"),
        ("package:os/../../etc/passwd", "not of the form"),
        ("package:just_a_name", "no package 'just_a_name' is installed"),
        ("package:a_name/", "not of the form"),
        ("package:json", "names no file: give one as package:json/FILE"),
        ("shape:unheard-of", "unknown shape 'unheard-of'; known are qwen2.5-0.5b"),
        ("hf:no-slash", "not of the form hf:OWNER/REPO"),
    ],
)
def test_bad_specs_say_what_is_wrong(tmp_path: Path, spec: str, expected: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        resolve(spec, cache=tmp_path)
    assert expected in str(caught.value)


def test_a_digest_is_computed_once(
    make_gguf: MakeGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = resolve(str(make_gguf()))
    first = digest(found, cache=tmp_path / "cache")
    calls: list[Path] = []
    real = module._file_digest
    monkeypatch.setattr(module, "_file_digest", lambda path: (calls.append(path), real(path))[1])
    assert digest(found, cache=tmp_path / "cache") == first
    assert calls == []
    found.path.write_bytes(found.path.read_bytes() + bytes(32))
    assert digest(found, cache=tmp_path / "cache") != first
    assert calls == [found.path]


def test_a_broken_or_unwritable_index_is_no_obstacle(make_gguf: MakeGguf, tmp_path: Path) -> None:
    found = resolve(str(make_gguf()))
    (tmp_path / "digests.json").write_text("{broken")
    assert digest(found, cache=tmp_path) == digest(found, cache=tmp_path / "tiny.gguf" / "below a file")


@pytest.mark.real
def test_the_demo_model(tmp_path: Path) -> None:
    info = model_info(resolve(module.DEMO), cache=tmp_path)
    assert (info.architecture, info.key_length, info.vocabulary_size) == ("llama", 64, 49152)
    assert info.has_chat_template
    assert max(info.tensor_mix, key=lambda pair: pair[1])[0] == "q4_1"


def test_a_shape_is_a_model_without_a_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.models import shapes

    small = shapes.Shape(
        "llama", 2, 64, 2, 1, 32, 96, 100, 256, 1e4, attention_bias=True, attention_norm=True
    )
    monkeypatch.setitem(shapes.SHAPES, "small", small)
    found = resolve("shape:small", cache=tmp_path)
    info = model_info(found, cache=tmp_path)
    assert (info.layer_count, info.vocabulary_size, info.weights_are_random, info.has_tokenizer) == (
        2,
        100,
        True,
        False,
    )
    assert [entry.name for entry in (tmp_path / "shapes").iterdir()] == ["small.gguf"]
    assert resolve("shape:small", cache=tmp_path).path == found.path
