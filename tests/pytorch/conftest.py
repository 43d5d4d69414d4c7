"""The demo model in every variant, made once for all tests that need PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.variants import Variants, start
from tuner.measurement.isolation import Deadlines, Worker
from tuner.models.source import DEMO, model_info, resolve
from tuner.models.variants import VariantCache


@pytest.fixture(scope="session")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Variants]:
    folder = tmp_path_factory.mktemp("torch")
    source = resolve(DEMO)
    with VariantCache(folder / "variants") as cache:
        yield Variants(folder, source, model_info(source, cache=folder), cache)


@pytest.fixture
def session_worker(variants: Variants) -> Iterator[Worker]:
    """A worker with a Transformers session of the demo model in float32."""
    with start("transformers", "session", variants.folder) as worker:
        worker.load(variants.path("transformers", "f32"), {"interop_threads": 1}, Deadlines())
        yield worker
