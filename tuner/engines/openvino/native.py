"""Which build of OpenVINO this is."""

from __future__ import annotations

from importlib.metadata import version as _installed

import openvino
import openvino_genai


def version() -> str:
    """The release."""
    return _installed("openvino")


def build() -> str:
    """The commits of runtime and GenAI; a change in them is drift."""
    return f"{openvino.get_version()} genai {openvino_genai.__version__}"
