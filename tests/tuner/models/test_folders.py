"""Models that are folders: recognised, described, and refused in one line that names what is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import folders
from tests.support.folders import write_huggingface, write_onnx, write_openvino, write_safetensors
from tuner.errors import ModelFileError
from tuner.models.source import model_info, resolve

WRITERS: dict[str, Callable[[Path], Path]] = {
    "huggingface": write_huggingface,
    "onnx": write_onnx,
    "openvino": write_openvino,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_is_a_source(kind: str, tmp_path: Path) -> None:
    folder = WRITERS[kind](tmp_path / "mine")
    source = resolve(str(folder))
    model = model_info(source, cache=tmp_path)
    assert (source.format, source.name, source.path) == (kind, "mine", folder)
    assert (model.format, model.vocabulary_size, model.kv_head_count, model.key_length) == (kind, 40, 1, 32)
    assert model.has_chat_template == (kind != "onnx")
    assert len(model.digest) == 64


def test_huggingface_sizes(tmp_path: Path) -> None:
    model = model_info(resolve(str(write_huggingface(tmp_path / "m"))), cache=tmp_path)
    assert (model.architecture, model.layer_count, model.hidden_size, model.head_count) == ("llama", 1, 64, 2)
    assert (model.context_length, model.sliding_window, model.has_tokenizer) == (128, None, True)
    assert model.parameter_count == folders.ELEMENTS
    assert model.tensor_mix == (("f32", 4 * model.parameter_count),)
    assert model.bits_per_weight == 32


def test_openvino_sizes_come_from_the_graph(tmp_path: Path) -> None:
    model = model_info(resolve(str(write_openvino(tmp_path / "m"))), cache=tmp_path)
    assert (model.layer_count, model.hidden_size, model.context_length) == (1, 64, 0)
    assert (model.parameter_count, model.tensor_mix) == (2560, (("f16", 80), ("u8", 2560)))


def test_a_model_type_has_the_name_that_gguf_files_have_for_it(tmp_path: Path) -> None:
    folder = write_huggingface(
        tmp_path / "m", model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], sliding_window=16
    )
    model = model_info(resolve(str(folder)), cache=tmp_path)
    assert (model.architecture, model.sliding_window) == ("gemma3", 16)


@pytest.mark.parametrize(
    ("kind", "file"),
    [("onnx", "model.onnx"), ("huggingface", "model.safetensors"), ("openvino", "openvino_model.xml")],
)
def test_m10_a_file_in_a_folder_stands_for_it(kind: str, file: str, tmp_path: Path) -> None:
    folder = WRITERS[kind](tmp_path / "m")
    assert resolve(str(folder / file)).path == folder


def test_another_content_is_another_digest(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m")
    before = model_info(resolve(str(folder)), cache=tmp_path).digest
    (folder / "README.md").write_text("not a part of the model")
    assert model_info(resolve(str(folder)), cache=tmp_path).digest == before
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    assert model_info(resolve(str(folder)), cache=tmp_path).digest != before


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    names = list(folders.SHAPES)
    index = {}
    for number, part in enumerate((names[:4], names[4:])):
        file = f"model-{number}.safetensors"
        write_safetensors(folder / file, {name: folders.SHAPES[name] for name in part}, kind="BF16")
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    model = model_info(resolve(str(folder)), cache=tmp_path)
    assert (model.parameter_count, model.bits_per_weight) == (folders.ELEMENTS, 16)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"lacks 1 of 2 weight files: model-1.safetensors"):
        model_info(resolve(str(folder)), cache=tmp_path)


def change(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("kind", "damage", "reason"),
    [
        ("huggingface", pickled, r"pickled weights \(pytorch_model.bin\), which can run code"),
        ("huggingface", lambda f: (f / "model.safetensors").unlink(), "lacks the weights"),
        ("huggingface", truncated, "is truncated: its tensors end at byte"),
        ("huggingface", lambda f: (f / "config.json").write_text("{"), "config.json is not a JSON document"),
        ("huggingface", lambda f: (f / "config.json").write_text("[" * 100_000), "is not a JSON document"),
        ("huggingface", lambda f: (f / "config.json").write_bytes(b" " * (5 << 20)), "allowed: 4194304"),
        ("huggingface", lambda f: change(f, architectures=["BertModel"]), "is not a text-generation model"),
        (
            "huggingface",
            lambda f: change(f, quantization_config={"quant_method": "gptq"}),
            r"already \(gptq\)",
        ),
        (
            "huggingface",
            lambda f: change(f, hidden_size=0),
            "hidden_size is 0; allowed: a whole number from 1",
        ),
        ("huggingface", lambda f: change(f, num_attention_heads=65), "allowed: a whole number from 1 to 64"),
        ("huggingface", lambda f: change(f, num_hidden_layers=1000), "num_hidden_layers is 1000"),
        ("huggingface", lambda f: change(f, vocab_size=41), "vocab_size is 41, the embedding has 40 rows"),
        (
            "onnx",
            lambda f: (f / "model.onnx.data").unlink(),
            "lacks model.onnx.data, the weights of model.onnx",
        ),
        ("onnx", lambda f: (f / "model.onnx").unlink(), "lacks model.onnx, which genai_config.json needs"),
        ("onnx", lambda f: (f / "model.onnx").write_bytes(b""), "model.onnx is empty"),
        ("onnx", lambda f: (f / "tokenizer.json").unlink(), "lacks the tokenizer"),
        ("onnx", lambda f: (f / "genai_config.json").write_text("{}"), "has no section 'model'"),
        ("openvino", lambda f: (f / "openvino_tokenizer.xml").unlink(), "lacks openvino_tokenizer.xml"),
        ("openvino", lambda f: (f / "openvino_detokenizer.bin").unlink(), "lacks openvino_detokenizer.bin"),
        (
            "openvino",
            lambda f: (f / "openvino_model.bin").write_bytes(b"0"),
            "openvino_model.bin is truncated",
        ),
        ("openvino", lambda f: (f / "openvino_model.xml").write_text("<net>"), "is not an OpenVINO graph"),
        (
            "openvino",
            lambda f: (f / "openvino_model.xml").write_text("<!DOCTYPE x><net></net>"),
            "begins with a declaration",
        ),
        (
            "openvino",
            lambda f: (f / "openvino_model.xml").write_text("<net></net>"),
            "with a KV cache of its own",
        ),
    ],
)
def test_m10_m11_what_is_wrong_is_named(
    kind: str, damage: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    folder = WRITERS[kind](tmp_path / "m")
    damage(folder)
    with pytest.raises(ModelFileError, match=reason) as caught:
        model_info(resolve(str(folder)), cache=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", WRITERS)
def test_m10_a_pointer_is_no_file(kind: str, tmp_path: Path) -> None:
    folder = WRITERS[kind](tmp_path / "m")
    largest = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    largest.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelFileError, match=f"{largest.name} is a Git LFS pointer"):
        resolve(str(folder))


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(
        ModelFileError, match=r"holds no model: allowed are a folder with genai_config.json or"
    ):
        resolve(str(tmp_path))


def test_code_in_a_folder_is_never_run(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m", auto_map={"AutoModelForCausalLM": "modeling.Evil"})
    (folder / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    source = resolve(str(folder))
    model_info(source, cache=tmp_path)
    assert "modeling.py" not in {path.name for path in source.paths}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"a": {"dtype": "F32", "shape": [1 << 50, 0], "data_offsets": [0, 0]}},
        {"a": {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}},
        {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"},
        {"a": 1},
        [],
    ],
)
def test_unsound_headers_are_refused(header: object, tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m")
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(ModelFileError):
        model_info(resolve(str(folder)), cache=tmp_path)


def test_a_header_without_end_is_not_read(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path / "m")
    path = folder / "model.safetensors"
    path.write_bytes((1 << 40).to_bytes(8, "little"))
    os.truncate(path, 1 << 30)
    with pytest.raises(ModelFileError, match="its header claims 1099511627776 bytes"):
        model_info(resolve(str(folder)), cache=tmp_path)
