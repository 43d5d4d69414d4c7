"""The side file: whole or begun anew, never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.daemon.drift import Reference
from service.daemon.memory import Circumstances, Memory, Trial, load, save
from service.daemon.quiet import Spent

FULL = Memory(
    accepted=Circumstances("f00d", "m0", "llama_cpp 1", "6.1"),
    reference=Reference(-0.2, 0.02, 8, 5.0),
    relative_sum=0.01,
    confirmed=0.2,
    slow_sets=1,
    measured_at_s=12.5,
    window={7: [1.0, 2.0]},
    live_reference={9: [3.0]},
    trial=Trial({7: [1.0]}, 1, 20),
    spent=Spent("2026-01-01", 60.0),
    failed={"compare p-1": (2, 99.0)},
)


def test_what_is_saved_is_loaded(tmp_path: Path):
    path = tmp_path / "home" / "daemon.json"
    save(path, FULL)
    assert load(path) == (FULL, None)
    assert os.listdir(path.parent) == ["daemon.json"]


def test_a_missing_file_is_a_beginning(tmp_path: Path):
    assert load(tmp_path / "none.json") == (Memory(), None)


@given(share=st.floats(0.0, 0.99), flip=st.integers(0, 255))
def test_a_truncated_or_damaged_file_is_said_and_begun_anew(
    tmp_path_factory: pytest.TempPathFactory, share: float, flip: int
):
    path = tmp_path_factory.mktemp("memory") / "daemon.json"
    save(path, FULL)
    whole = path.read_bytes()
    cut = int(share * len(whole))
    path.write_bytes(whole[:cut])
    found, problem = load(path)
    assert found == Memory()
    assert problem is not None
    assert "begins anew" in problem
    path.write_bytes(whole[:cut] + bytes([flip]) + whole[cut + 1 :])
    load(path)


def test_d06_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "daemon.json"
    save(path, FULL)

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(path, Memory())
    assert load(path) == (FULL, None)
    assert os.listdir(tmp_path) == ["daemon.json"]
