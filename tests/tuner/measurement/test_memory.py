"""S14: anonymous and file-backed memory are told apart, for a process of its own."""

import json
import sys
from pathlib import Path

import pytest

from tuner import process

MEASURE = "\nimport json\nfrom tuner.measurement import counters\nprint(json.dumps(counters.memory()))"


def memory_after(code: str) -> dict[str, float]:
    ending = process.run([sys.executable, "-P", "-c", code + MEASURE], deadline_s=60)
    assert ending.returncode == 0, ending.log_tail
    return json.loads(ending.stdout)


@pytest.fixture(scope="module")
def idle() -> dict[str, float]:
    return memory_after("")


def test_s14_touched_pages_of_a_mapping_are_file_backed(tmp_path: Path, idle: dict[str, float]):
    path = tmp_path / "weights"
    with path.open("wb") as file:
        file.write(b"x" * (64 << 20))
    # MADV_RANDOM: without it the kernel maps pages around each one that is touched.
    code = (
        f"import mmap\nfile = open({str(path)!r}, 'rb')\n"
        "mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "mapped.madvise(mmap.MADV_RANDOM)\n"
        "total = sum(mapped[i] for i in range(0, 32 << 20, 4096))\n"
    )
    found = memory_after(code)
    assert found["peak_file_mib"] - idle["peak_file_mib"] == pytest.approx(32, abs=3)
    assert found["peak_anon_mib"] - idle["peak_anon_mib"] == pytest.approx(0, abs=3)


def test_s14_allocated_memory_is_anonymous_and_the_peak_survives_its_release(idle: dict[str, float]):
    held = memory_after("held = b'x' * (100 << 20)\n")
    assert held["peak_anon_mib"] - idle["peak_anon_mib"] == pytest.approx(100, abs=3)
    assert held["peak_file_mib"] - idle["peak_file_mib"] == pytest.approx(0, abs=3)
    freed = memory_after("held = b'x' * (100 << 20)\ndel held\n")
    assert freed["peak_anon_mib"] - idle["peak_anon_mib"] == pytest.approx(0, abs=3)
    assert freed["peak_rss_mib"] > 100
