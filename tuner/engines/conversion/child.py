"""Runs a maker as a child process: arguments from the command line, its reason as stderr's last line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Make = Callable[[Path, Path, Mapping[str, Any]], None]
"""Makes the target, which does not exist, of the source by the recipe's parameters."""


def run(make: Make) -> int:
    """The exit code: 0 when made, 1 with one line on stderr for what a library refuses."""
    source, target, parameters = sys.argv[1:]
    try:
        make(Path(source), Path(target), json.loads(parameters))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
        sys.stderr.write(f"\n{type(error).__name__}: {' '.join(str(error).split())[:500]}\n")
        return 1
    return 0
