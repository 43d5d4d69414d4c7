"""Shows that this build of onnxruntime-genai computes on this CPU: an answer from a made-up model."""

from __future__ import annotations

import tempfile
from pathlib import Path

from profiles.vocabulary import Setting
from tuner.engines.onnxruntime import native, tiny
from tuner.engines.onnxruntime.session import OnnxSession


def run() -> dict[str, object]:
    """Version and build, after two tokens; what ends the process ends it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        tiny.write(path)
        answer(path)
    return {"version": native.version(), "build": native.build()}


def answer(folder: Path) -> list[int]:
    """Two tokens after a prompt of nine, so that kernels for many and for one token run."""
    settings: dict[str, Setting] = {"intra_op_num_threads": 1, "spinning": "off"}
    session = OnnxSession()
    session.load(folder, settings)
    session.configure({}, 32, 1)
    session.add(range(1, 10), 2, ignore_eos=True)
    tokens = [token.token for _ in range(2) for token in session.step()]
    session.close()
    return tokens
