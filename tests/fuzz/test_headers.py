"""A share of `make fuzz`: mutated headers are described or refused, soon and in flat memory."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.headers import resident_mib, run, seeds
from tuner.models.inspect import inspect

COUNT = 10_000


def test_m04_mutated_headers_are_described_or_refused(tmp_path: Path):
    run(tmp_path, count=200, seed=1)
    before = resident_mib()
    findings = run(tmp_path, count=COUNT, seed=2, for_s=15)
    assert findings.faults == []
    assert resident_mib() - before < 8
    # Fuzzing that never comes past the first check shows nothing.
    assert sum(findings.outcomes.values()) >= 1000
    assert findings.outcomes["described"] > 20
    assert len(findings.outcomes) > 12


def test_the_seeds_are_valid(tmp_path: Path):
    for number, data in enumerate(seeds()):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(data)
        assert inspect([path], name="seed").architecture == "llama"
