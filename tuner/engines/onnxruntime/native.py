"""What identifies this build of onnxruntime-genai and of the runtime under it."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path

_LIBRARIES = (("onnxruntime", "capi/libonnxruntime*"), ("onnxruntime_genai", "*.so*"))


def version() -> str:
    """The version of onnxruntime-genai."""
    return _version_of("onnxruntime-genai")


def runtime_version() -> str:
    """The version of onnxruntime."""
    return _version_of("onnxruntime")


@cache
def build() -> str:
    """Versions, and the first 12 hex digits of a SHA-256 over the libraries that compute."""
    digest = hashlib.sha256()
    for package, pattern in _LIBRARIES:
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            for path in sorted(Path(spec.origin).parent.glob(pattern)):
                digest.update(path.read_bytes())
    return (
        f"onnxruntime-genai {version()}, onnxruntime {runtime_version()}, libraries {digest.hexdigest()[:12]}"
    )


def _version_of(distribution: str) -> str:
    try:
        return version_of(distribution)
    except PackageNotFoundError:
        return "unknown"
