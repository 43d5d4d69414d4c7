"""The registry of engines: a string each, imported when asked for."""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from tuner.errors import UsageError

if TYPE_CHECKING:
    from profiles.vocabulary import ModelInfo
    from tuner.engines.base import Engine

BUILT_IN = {
    "llama_cpp": "tuner.engines.llama_cpp.describe:LlamaCpp",
    "onnxruntime": "tuner.engines.onnxruntime.describe:OnnxRuntime",
    "openvino": "tuner.engines.openvino.describe:OpenVino",
    "simulated": "tuner.engines.simulated.describe:Simulated",
    "transformers": "tuner.engines.transformers.describe:Transformers",
}
NEVER_BY_DEFAULT = frozenset({"simulated"})
"""Engines that run only when they are named."""
REFERENCE = "transformers"
"""The engine whose default every report over several engines is relative to."""


def references() -> dict[str, str]:
    """Name -> "module:Class" of every registered engine; ours win over an entry point of equal name."""
    third_party = {point.name: point.value for point in entry_points(group="cputune.engines")}
    return {**third_party, **BUILT_IN}


def resolve(reference: str) -> object:
    """The object that "module:name" names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def get(name: str) -> Engine:
    """The description of an engine.

    Raises UsageError with the nearest name for an unknown one.
    """
    known = references()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown engine '{name}': known are {', '.join(sorted(known))}{hint}")
    return cast("type[Engine]", resolve(known[name]))()


def default_names(model: ModelInfo | None = None) -> tuple[str, ...]:
    """The engines that a search tries when none is named; those first that such a model is made for."""
    names = sorted(set(references()) - NEVER_BY_DEFAULT)
    if model is not None:
        names.sort(key=lambda name: model.format not in get(name).formats[:1])
    return tuple(names)


def unread(engine: Engine, model: ModelInfo) -> str | None:
    """Why an engine can't take a model, as it is or by a conversion; None when it can."""
    if model.format not in engine.formats:
        return f"does not read {model.format} files"
    return engine.refuses(model)
