"""Services on the simulated engine, and one on the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import Served, serving
from tests.support.tiny import write_tiny_model
from tuner.home import Home


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that runs the simulated engine's default; tests must leave it as they found it."""
    folder = tmp_path_factory.mktemp("service")
    with serving(Home(folder), engine="simulated", model=str(tiny_model(folder))) as served:
        yield served


def tiny_model(folder: Path) -> Path:
    """A model file that the simulated engine takes."""
    return write_tiny_model(folder / "tiny.gguf")
