"""The bindings' helpers, the recipes, and the smoke test that availability rests on."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import pytest

from tuner import process
from tuner.engines.base import EngineError
from tuner.engines.llama_cpp import native, recipes, smoke
from tuner.engines.llama_cpp.describe import LlamaCpp
from tuner.models.gguf import read_header
from tuner.models.gguf_types import TENSOR_TYPES

pytestmark = pytest.mark.real


def test_e12_an_unknown_field_is_an_error() -> None:
    parameters = native.low.llama_model_default_params()
    with pytest.raises(EngineError, match="llama_model_params has no field 'use_mmap'"):
        native.set_fields(parameters, use_mmap=True)
    native.set_fields(parameters, use_extra_bufts=False)
    assert parameters.use_extra_bufts is False


def test_the_type_tables_are_the_engines_own() -> None:
    base = ctypes.CDLL(str(next(Path(native.low._lib._name).parent.glob("libggml-base.so*"))))
    base.ggml_type_name.restype = ctypes.c_char_p
    base.ggml_blck_size.restype = ctypes.c_int64
    base.ggml_type_size.restype = ctypes.c_size_t
    names = {name: base.ggml_type_name(kind).decode().lower() for name, kind in native.GGML_TYPES.items()}
    assert names == {name: name for name in native.GGML_TYPES}
    theirs = {
        kind: (
            base.ggml_type_name(kind).decode().lower(),
            base.ggml_blck_size(kind),
            base.ggml_type_size(kind),
        )
        for kind in TENSOR_TYPES
    }
    assert theirs == {kind: tuple(known) for kind, known in TENSOR_TYPES.items()}


def test_the_build_is_told_the_same_each_time() -> None:
    assert native.version() in native.build()
    assert len(native.library_hash()) == 12
    assert native.build() == native.build()


@pytest.mark.parametrize(("label", "kind"), [("q8_0", "q8_0"), ("q4_0", "q4_0")])
def test_a_recipe_makes_its_type(demo_model: Path, tmp_path: Path, label: str, kind: str) -> None:
    target = tmp_path / "made.gguf"
    recipes.make(demo_model, target, {"file_type": label})
    header = read_header(target)
    assert max(header.tensor_mix, key=lambda name: header.tensor_mix[name]) == kind
    assert len(header.tensors) == len(read_header(demo_model).tensors)


def test_recipes_may_name_the_embedding_type(demo_model: Path, tmp_path: Path) -> None:
    target = tmp_path / "made.gguf"
    recipes.make(demo_model, target, {"file_type": "q4_0", "token_embedding_type": "q4_0"})
    types = {tensor.name: tensor.type for tensor in read_header(target).tensors}
    assert types["token_embd.weight"] == "q4_0"


@pytest.mark.parametrize("parameters", [{"file_type": "q99"}, {}, {"file_type": "f16", "colour": "red"}])
def test_bad_recipes_are_refused(tmp_path: Path, parameters: dict[str, str]) -> None:
    with pytest.raises(EngineError, match="bad recipe"):
        recipes.make(tmp_path / "any", tmp_path / "target", parameters)


def test_the_maker_ends_with_the_engines_line(tmp_path: Path) -> None:
    source = tmp_path / "broken.gguf"
    source.write_bytes(b"GGUFxxxxxxxxxxxxxxxx")
    ending = process.run(
        process.python_argv(LlamaCpp().maker(), str(source), str(tmp_path / "t"), '{"file_type": "f16"}'),
        deadline_s=60,
    )
    assert ending.returncode == 1
    assert "gguf" in ending.log_tail.splitlines()[-1].lower()


def test_k01_the_probe_computes_in_a_child(tmp_path: Path) -> None:
    ending = process.run([sys.executable, "-P", "-c", LlamaCpp().probe_code()], deadline_s=60)
    assert ending.returncode == 0, ending.log_tail
    told = json.loads(ending.stdout)
    assert (told["version"], told["build"]) == (native.version(), native.build())


def test_the_smoke_model_is_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(smoke.tiny_model())
    assert len(read_header(path).tensors) == 12
    assert len(smoke.answer(path, repack=False)) == 2


def test_k01_a_build_that_dies_of_repacked_weights_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke, "_try_in_fork", lambda path: "SIGILL")
    told = smoke.run()
    assert "repack=true" in told["note"]
    assert "SIGILL" in told["note"]


def _bytes_of(path: Path) -> dict[str, tuple[str, bytes]]:
    header = read_header(path)
    data = path.read_bytes()[header.data_start :]
    return {t.name: (t.type, data[t.offset : t.offset + t.size_bytes]) for t in header.tensors}


def test_tensors_that_have_their_type_already_are_copied_bit_by_bit(tmp_path: Path) -> None:
    from tests.support.builds import demo_model

    source, made = _bytes_of(demo_model()), tmp_path / "q8_0.gguf"
    recipes.make(demo_model(), made, {"file_type": "q8_0"})
    variant = _bytes_of(made)
    assert set(variant) == set(source)
    kept = {name for name, (kind, _data) in source.items() if kind in ("q8_0", "f32")}
    # Quantizing a q8_0 tensor again would change it.
    assert "token_embd.weight" in kept
    assert all(variant[name] == source[name] for name in kept)
    assert all(variant[name] != source[name] for name in set(source) - kept)


def test_a_pair_gives_the_ends_a_type_of_their_own(tmp_path: Path) -> None:
    from tests.support.builds import demo_model

    made = tmp_path / "pair.gguf"
    pair = {"file_type": "bf16", "token_embedding_type": "q8_0", "output_tensor_type": "q8_0"}
    recipes.make(demo_model(), made, pair)
    types = {tensor.name: tensor.type for tensor in read_header(made).tensors}
    assert types.pop("token_embd.weight") == "q8_0"
    assert set(types.values()) == {"f32", "bf16"}
