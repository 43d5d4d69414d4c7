"""A tiny model, searches on it, and a data folder in which one search has ended."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from profiles.vocabulary import Config, Quality
from tests.support.flow import Flow
from tests.support.surface import LOSSLESS, RUINED
from tests.support.tiny import write_tiny_model
from tuner.engines.simulated import faults, surface
from tuner.home import Home
from tuner.measurement.isolation import Worker
from tuner.workshop import Workshop


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="session")
def finished(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A data folder after one search, quality measured for real, and the document it printed."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        flow = Flow(Home(folder / "home"), tiny_model)
        document = flow.search(trials=4)
    return flow.home.root, document


@pytest.fixture
def flow(home: Path, tiny_model: Path) -> Flow:
    """An empty data folder."""
    return Flow(Home(home), tiny_model)


@pytest.fixture
def flow_after(home: Path, tiny_model: Path, finished: tuple[Path, dict[str, Any]]) -> Flow:
    """A copy of the data folder in which one search has ended."""
    shutil.copytree(finished[0], home)
    return Flow(Home(home), tiny_model)


@pytest.fixture
def quick_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quality by the variant's name: q4_0 ruins answers, all else keeps them."""

    def quality(_shop: Workshop, key: Config) -> Quality:
        return RUINED if key.variant == "q4_0" or "q4_0" in dict(key.settings).values() else LOSSLESS

    monkeypatch.setattr(Workshop, "quality", quality)


@pytest.fixture
def set_faults(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, object]], None]:
    """Switch faults on in the workers that start from now on."""
    return lambda on: monkeypatch.setenv(faults.VARIABLE, json.dumps(on))


@pytest.fixture
def set_world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change the simulated machine of the workers that start from now on."""
    return lambda **fields: monkeypatch.setenv(surface.VARIABLE, json.dumps(fields))


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process ids of every worker that is started; none may be left at the end."""
    started: list[int] = []
    start = Worker.start

    def counting(*arguments: Any, **options: Any) -> Worker:
        worker = start(*arguments, **options)
        started.append(worker.pid)
        return worker

    monkeypatch.setattr(Worker, "start", counting)
    yield started
    assert [pid for pid in started if os.path.exists(f"/proc/{pid}")] == []
