"""The registry of engines: a string each, imported when asked for."""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.engines.base import Engine

BUILT_IN = {
    "llama_cpp": "tuner.engines.llama_cpp.describe:LlamaCpp",
    "simulated": "tuner.engines.simulated.describe:Simulated",
}
NEVER_BY_DEFAULT = frozenset({"simulated"})
"""Engines that run only when they are named."""


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


def default_names() -> tuple[str, ...]:
    """The engines that a search tries when none is named."""
    return tuple(sorted(set(references()) - NEVER_BY_DEFAULT))
