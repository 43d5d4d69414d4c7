"""The compiled graph of a made-up model: what it takes, what it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from probes.machine import Machine
from tuner.engines.base import EngineError
from tuner.engines.openvino.caches import OwnCache, SharedCache
from tuner.engines.openvino.describe import KV_UNDER, has_bf16
from tuner.engines.openvino.graph import Graph, reason

pytestmark = pytest.mark.real

PAIRS = [(hint, kv) for hint, kvs in KV_UNDER.items() for kv in kvs]


@pytest.mark.parametrize("backend", ["sdpa", "paged"])
@pytest.mark.parametrize(("hint", "kv"), PAIRS)
def test_e12_every_pair_of_precisions_is_held_as_asked(
    backend: str, hint: str, kv: str, tiny_folder: Path, machine: Machine
) -> None:
    if hint == "bf16" and not has_bf16(machine):
        pytest.skip("this CPU does not compute in bf16")
    asked = {"attention_backend": backend, "inference_precision_hint": hint, "kv_cache_precision": kv}
    held = Graph(tiny_folder, asked).effective()
    assert {name: held[name] for name in asked} == asked


def test_e12_the_cache_itself_says_its_precision(tiny_folder: Path, machine: Machine) -> None:
    """The property says f16 here, and the cache is bf16: the trial would measure what it does not say."""
    if not has_bf16(machine):
        pytest.skip("this CPU does not compute in bf16")
    graph = Graph(tiny_folder, {"inference_precision_hint": "bf16", "kv_cache_precision": "f16"})
    assert graph.effective()["kv_cache_precision"] == "bf16"


def test_only_the_asked_logits_are_computed(tiny_folder: Path) -> None:
    exact = {"inference_precision_hint": "f32", "kv_cache_precision": "f32"}
    paged = SharedCache(Graph(tiny_folder, exact), 2, 64)
    tokens = range(1, 41)
    every = paged.places[0].feed_all(tokens, range(40)).copy()
    assert every.shape == (40, 96)
    last = paged.places[1].feed(tokens)
    assert last.shape == (96,)
    assert np.allclose(last, every[-1], atol=1e-4)
    alone = OwnCache(Graph(tiny_folder, {**exact, "attention_backend": "sdpa"}))
    assert alone.feed_all(tokens, (3, 7)).shape == (2, 96)


def test_a_graph_that_is_no_language_model_is_refused(tmp_path: Path) -> None:
    numbers = ov.opset13.parameter([-1], np.float32, name="x")
    ov.save_model(ov.Model([ov.opset13.relu(numbers)], [numbers], "x"), tmp_path / "openvino_model.xml")
    for backend in ("sdpa", "paged"):
        with pytest.raises(EngineError) as refused:
            Graph(tmp_path, {"attention_backend": backend})
        assert "\n" not in str(refused.value)


def test_the_reason_is_openvino_s_own_line() -> None:
    told = "Exception from src/core.cpp:117:\nCheck 'a == b' failed at /build/src/x.cpp:7:\nWrong value 3\n\n"
    assert reason(RuntimeError(told)) == "Wrong value 3"
    assert reason(RuntimeError("Check 'a' failed at x.cpp:7:\n")) == "Check 'a' failed at x.cpp:7:"
    assert reason(RuntimeError()) == "RuntimeError"
