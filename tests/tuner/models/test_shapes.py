"""Models of a published shape: as their makers describe them, with weights as real ones have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.support.builds import safe
from tuner.errors import ModelFileError
from tuner.models.inspect import inspect
from tuner.models.shapes import LEAST_WEIGHT, SHAPES, Shape, shape_file, write_shape


def small(name: str) -> Shape:
    """A published shape in its own proportions of heads, at a size that is written in milliseconds."""
    shape = SHAPES[name]
    heads = 2 * shape.heads // shape.kv_heads
    return replace(
        shape,
        layers=6,
        hidden=32 * heads,
        heads=heads,
        kv_heads=2,
        head_size=32,
        feed_forward=96,
        vocabulary=320,
        sliding_window=shape.sliding_window and 32,
    )


def test_no_weight_is_zero_or_subnormal(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    write_shape(replace(small("llama-3.2-1b"), vocabulary=20_000), "small", path)
    reader = gguf.GGUFReader(path)
    matrices = [tensor.data for tensor in reader.tensors if len(tensor.shape) == 2]
    assert min(float(np.abs(matrix).min()) for matrix in matrices) >= 0.99 * LEAST_WEIGHT
    assert np.finfo(np.float16).smallest_normal < LEAST_WEIGHT
    embedding = next(tensor.data for tensor in reader.tensors if tensor.name == "token_embd.weight")
    assert 0.01 < float(np.std(embedding)) < 0.03
    assert abs(float(np.mean(embedding))) < 0.001


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-0.6b", 596_049_920),
        ("llama-3.2-1b", 1_235_814_400),
        ("smollm2-360m", 361_821_120),
        ("gemma-3-270m", 268_098_176),
    ],
)
def test_a_shape_has_as_many_parameters_as_the_model(name: str, parameters: int) -> None:
    from tuner.models.shapes import _tensors

    assert sum(int(np.prod(size)) for _name, size in _tensors(SHAPES[name])) == parameters
    assert set(SHAPES) == {
        "qwen2.5-0.5b", "qwen3-0.6b", "llama-3.2-1b", "smollm2-360m", "gemma-3-270m",
    }  # fmt: skip


def test_a_shape_that_the_disk_has_no_room_for_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 600 << 20

    monkeypatch.setattr("tuner.models.shapes.shutil.disk_usage", lambda _path: Usage)
    with pytest.raises(ModelFileError, match=r"no room for shape:llama-3\.2-1b of 2357 MiB: .* 600 MiB free"):
        shape_file("llama-3.2-1b", tmp_path)
    assert list((tmp_path / "shapes").iterdir()) == []


@pytest.mark.parametrize(
    ("source", "said"),
    [("shape:small", "quality is not measured"), ("m.gguf", "quality is relative to your")],
)
def test_an_answer_for_random_weights_claims_no_quality(
    finished: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str], source: str, said: str
) -> None:
    from tuner.cli.render import search_report

    document = finished[1]
    search_report({**document, "model": {**document["model"], "source": source}})
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.real
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_shape_loads_and_decodes(name: str, tmp_path: Path) -> None:
    from tuner.engines.llama_cpp.session import LlamaSession

    path = tmp_path / "small.gguf"
    write_shape(small(name), "small", path)
    info = inspect([path], name="small", random_weights=True)
    assert (info.architecture, info.sliding_window is None) == (
        SHAPES[name].architecture,
        SHAPES[name].sliding_window is None,
    )
    session = LlamaSession()
    session.load(path, safe("llama_cpp", {"repack": True}))
    session.configure({"n_threads": 1, "n_threads_batch": 1, "n_ubatch": 16}, 128, 1)
    session.add([1 + index % 300 for index in range(64)], 4, ignore_eos=True)
    made: list[int] = []
    for _ in range(10):
        made += [token.token for token in session.step()]
    session.close()
    assert len(made) == 4
