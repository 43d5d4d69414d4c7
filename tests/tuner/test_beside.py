"""What stands beside an answer costs it nothing: no variant is made anew for the ceiling of decode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from probes.bandwidth import Bandwidth
from probes.effective import Effective
from probes.machine import Machine
from profiles.vocabulary import WORKLOADS, Config
from tests.support.surface import MODEL
from tuner.beside import decode_ceiling

ITL_MS = {"source": 5.0, "q8_0": 8.0, "f16": 15.0}
MEGABYTES = {"source": 40, "q8_0": 70, "f16": 140}


@pytest.fixture
def shop() -> Any:
    """One without the files of its variants; another engine calls other files by the same names."""
    made = [
        SimpleNamespace(engine=engine, label=label, tensor_mix={"x": scale * size, "f32": 0})
        for engine, scale in (("llama_cpp", 10**6), ("openvino", 10**9))
        for label, size in MEGABYTES.items()
    ]
    return SimpleNamespace(
        workload=WORKLOADS["chat"],
        model=MODEL,
        machine=Machine(effective=Effective(cpus=(0,), cpu_count=1)),
        store=SimpleNamespace(variants=lambda _digest: made),
        made=made,
    )


def test_the_ceiling_is_told_from_what_was_measured(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.beside.measure_reads", lambda size, _counts: Bandwidth(((1, 10.0),), size))
    configs = [Config.of("llama_cpp", label, {"n_threads": 1}) for label in ITL_MS]
    ledger: Any = SimpleNamespace(configs=configs, values_ms=lambda config, _: (ITL_MS[config.variant],))
    found = decode_ceiling(shop, ledger, configs[0], "quiet")
    assert found is not None
    assert (found["bytes_per_token"], found["bandwidth_gbps"]) == (40e6, 10.0)
    # 40 MB at 10 GB/s take 4 ms; each variant was measured to take at least 1 ms more than its bytes.
    assert (found["fixed_ms"], found["reached"]) == pytest.approx((1.0, 1.0))
    assert decode_ceiling(shop, ledger, configs[0], "loaded") is None
    # Two sizes can't tell a fixed cost from bandwidth.
    shop.made.pop(1)
    assert decode_ceiling(shop, ledger, configs[0], "quiet") is None
