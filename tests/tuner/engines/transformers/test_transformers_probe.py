"""Why Transformers does not run here, said of packages that are broken: without PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from probes.machine import probe
from tuner import engines
from tuner.cli.doctor import engine_checks
from tuner.engines.base import Availability
from tuner.measurement.availability import availability

Break = Callable[[str], None]
MUSL = "libc.musl-x86_64.so.1: cannot open shared object file: No such file or directory"


@pytest.fixture
def break_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Break:
    """Puts a package `torch` of some lines before the real one, for the children of this process."""

    def write(code: str) -> None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return write


def tried() -> Availability:
    return availability(engines.get("transformers"), features=("avx", "fma", "f16c", "bmi2"))


def test_k01_a_build_for_another_cpu_is_explained(break_torch: Break) -> None:
    break_torch("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    found = tried()
    assert not found.available
    assert (found.reason or "").startswith("this build needs instructions that the CPU lacks (no avx2)")
    assert "\n" not in (found.reason or "")


def test_k02_a_loader_s_error_names_the_library(break_torch: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    """And doctor says it as what is missing, which is no failure of its own."""
    break_torch(f"raise OSError({MUSL!r})\n")
    found = tried()
    assert (found.available, found.reason) == (False, f"OSError: {MUSL}")
    monkeypatch.setattr(engines, "default_names", lambda: ("transformers",))
    (check,) = engine_checks(probe())
    assert (check["state"], check["message"]) == ("missing", f"transformers: OSError: {MUSL}")
