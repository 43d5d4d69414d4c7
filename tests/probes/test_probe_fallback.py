"""Libraries are asked only where files are silent, and are not waited for."""

from __future__ import annotations

import subprocess

import pytest

from probes import evidence, fallback
from probes.fallback import HostFacts
from probes.machine import PROBES
from probes.sysfs import Sysfs


def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sysfs, "raw", lambda self, path: None)
    monkeypatch.setattr(Sysfs, "names", lambda self, path: [])


def test_a_system_without_proc_is_told_by_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    silent(monkeypatch)
    facts = HostFacts("Vendor", "Model", ("avx2",), 8, 4, 1 << 34, 1 << 33)
    monkeypatch.setattr(fallback, "ask_host", lambda: facts)
    seen = evidence.Evidence(Sysfs())
    found = {name: read(seen) for name, read in PROBES.items()}
    assert (found["identity"].vendor, found["identity"].model_name) == ("Vendor", "Model")
    assert (found["topology"].logical_cpus, found["topology"].physical_cores) == (8, 4)
    assert found["features"] == ("avx2",)
    assert found["memory"].available_bytes == 1 << 33


def test_failing_libraries_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("cpuinfo", 1)

    monkeypatch.setattr(subprocess, "run", fail)
    monkeypatch.setattr(fallback, "_ask_psutil", lambda: None)
    assert fallback.ask_host(0.1) == HostFacts()


def test_the_real_libraries_answer_or_stay_silent() -> None:
    facts = fallback.ask_host(20.0)
    assert facts.logical_cpus is None or facts.logical_cpus >= 1
    assert facts.total_bytes is None or facts.total_bytes > 0
