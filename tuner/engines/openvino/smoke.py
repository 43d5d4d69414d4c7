"""Shows that this build of OpenVINO computes on this CPU: tokens of a made-up model, on both backends."""

from __future__ import annotations

import tempfile
from pathlib import Path

import openvino as ov

from tuner.engines.openvino import native, tiny
from tuner.engines.openvino.caches import OwnCache, SharedCache
from tuner.engines.openvino.folder import MODEL
from tuner.engines.openvino.graph import PAGED, SDPA, Graph


def run() -> dict[str, object]:
    """Version and build; what goes wrong raises, or ends this process, whose parent reads the signal."""
    with tempfile.TemporaryDirectory() as folder:
        ov.save_model(tiny.model(), Path(folder, MODEL))
        for backend in (SDPA, PAGED):
            answer(Path(folder), backend)
    return {"version": native.version(), "build": native.build()}


def answer(folder: Path, backend: str) -> list[int]:
    """Two tokens after a prompt of nine, so that kernels for many and for one token run."""
    graph = Graph(folder, {"attention_backend": backend, "inference_num_threads": 1})
    cache = SharedCache(graph, 1, 32).places[0] if graph.is_paged else OwnCache(graph)
    first = int(cache.feed(range(1, 10)).argmax())
    return [first, int(cache.feed([first]).argmax())]
