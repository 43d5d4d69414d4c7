"""A configuration as what another program takes: flags, a snippet, variables, a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tuner.errors import UsageError
from tuner.export.command import Command
from tuner.export.document import as_json, as_yaml
from tuner.export.edit import Edited, FlagChange, edited
from tuner.export.launch import Launch
from tuner.export.ollama import as_ollama
from tuner.export.python import as_python
from tuner.export.reading import parse_command
from tuner.export.server import as_environment, as_llama_server

__all__ = ["FORMATS", "Command", "Edited", "FlagChange", "Launch", "edited", "export", "parse_command"]

FORMATS: Mapping[str, Callable[[Launch], str]] = {
    "llama-server": as_llama_server,
    "llama-cpp-python": as_python,
    "ollama": as_ollama,
    "env": as_environment,
    "yaml": as_yaml,
    "json": as_json,
}


def export(launch: Launch, target: str) -> str:
    """A launch in one of `FORMATS`; what the target can't express is said in a comment.

    Raises UsageError for an unknown target, and for one that does not run the launch's engine.
    """
    if target not in FORMATS:
        raise UsageError(f"unknown format '{target}': allowed are {', '.join(FORMATS)}")
    return FORMATS[target](launch)
