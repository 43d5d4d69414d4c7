"""Popular advice: rows are well-formed, cells say what a comparison said, the page keeps what it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probes.machine import Machine, probe
from tests.benchmarks import advice
from tests.benchmarks.advice_rows import ROWS, Row
from tests.benchmarks.advice_sides import (
    ONNX,
    PYTORCH,
    NothingToCompareError,
    Side,
    Sides,
    against_cores,
    cores_of,
    engines,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "advice.md"
EMPTY = "# Advice\n<!-- measured: advice -->\n<!-- end -->\nend\n"


@pytest.fixture(scope="module")
def machine() -> Machine:
    return probe()


def row(name: str) -> Row:
    return next(row for row in ROWS if row.name == name)


def document(verdict: str = "b", **b: float) -> dict[str, Any]:
    """What `compare --json` prints, as far as it is read."""
    metrics = {"response_ms.p50": 900.0, "peak_rss_mib": 300.0, "load_ms": 90.0, "first_request_ms": 110.0}
    return {
        "ratio": {"estimate": 1.5, "low": 1.4, "high": 1.6, "confidence": 0.969},
        "verdict": verdict,
        "pairs": 6,
        "conditions": "quiet",
        "a": {"metrics": metrics},
        "b": {"metrics": metrics | {"response_ms.p50": 600.0} | b},
    }


def test_rows_are_measured_or_say_with_what_they_follow() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [row.name for row in ROWS if not (row.sides or row.served or row.follows)] == []


def test_sides_differ_in_the_advice_alone(machine: Machine) -> None:
    for one in ROWS:
        if one.sides is None:
            continue
        try:
            a, b = one.sides(machine)
        except NothingToCompareError:
            continue
        assert advice.difference(a, b) != advice.difference(b, a), one.name
        named = {part.partition("=")[0] for part in advice.difference(b, a).split()}
        assert named <= {"n_threads", "n_threads_batch"} or len(named) <= 2, one.name


def test_engines_are_compared_with_a_thread_for_each_core(machine: Machine) -> None:
    a, b = engines(PYTORCH, Side({}, "fp32", ONNX))(machine)
    assert advice.difference(a, b) == "transformers f32"
    assert advice.difference(b, a) == "onnxruntime fp32"
    assert b.settings == {"intra_op_num_threads": cores_of(machine)}


def test_a_comparison_becomes_cells(machine: Machine) -> None:
    def compare(_row: Row, sides: Sides) -> dict[str, Any]:
        assert sides[1].settings["n_ubatch"] == 8
        return document("a")

    cells = advice.measured([row("batch-streaming")], machine, compare)
    figures, finding = cells["batch-streaming"]
    assert "`n_ubatch=8` 1.50 times as fast as `default` (1.40 to 1.60 at 96.9 %, 6 pairs)" in figures
    assert "response_ms 900 -> 600 ms" in figures
    assert finding == "does not hold here: slower"


def test_a_failed_comparison_is_a_line_and_the_others_go_on(machine: Machine) -> None:
    def compare(_row: Row, sides: Sides) -> dict[str, Any]:
        if sides[0].variant == "f16":
            raise advice.AdviceError("no engine can run here")
        return document()

    cells = advice.measured([row("bf16"), row("mmap-off")], machine, compare)
    assert cells["bf16"] == ("failed: no engine can run here", "-")
    assert cells["mmap-off"][1] == "holds here"


@pytest.mark.parametrize(
    ("name", "found", "finding"),
    [
        ("kv-q8_0", document("a", peak_rss_mib=280.0), "holds here: 20 MiB saved; response 1.50x"),
        ("kv-q8_0", document("a"), "does not hold here: 0 MiB saved; response 1.50x"),
        ("cold-start", document(), "holds here: 0.20 s"),
        ("int8-under-load", document("b"), "does not hold here: the small one is faster without load too"),
        ("int8-under-load", document("not resolved"), "not resolved"),
    ],
)  # fmt: skip
def test_findings_of_their_own(name: str, found: dict[str, Any], finding: str) -> None:
    says = row(name).says
    assert says is not None
    assert says(found) == finding


def test_equal_sides_are_nothing_to_compare(machine: Machine) -> None:
    with pytest.raises(NothingToCompareError):
        against_cores(cores_of)(machine)


# --- the page ------------------------------------------------------------------------------------


def test_one_row_is_rewritten_and_the_others_stay() -> None:
    page = advice.rewritten(
        EMPTY, "Measured on: here", {"bf16": ("1.1 times", "holds here"), "q8_0": ("2 | 3", "-")}
    )
    page = advice.rewritten(page, "Measured on: here", {"bf16": ("1.2 times", "holds here")})
    head, cells = advice.kept(page)
    assert head == "Measured on: here"
    assert cells == {"bf16": ("1.2 times", "holds here"), "q8_0": ("2 | 3", "-")}
    assert page.startswith("# Advice\n")
    assert page.endswith("<!-- end -->\nend\n")


def test_rows_of_two_machines_do_not_mix() -> None:
    page = advice.rewritten(EMPTY, "Measured on: here", {"q8_0": ("2 times", "holds here")})
    with pytest.raises(advice.AdviceError, match="measure all rows"):
        advice.rewritten(page, "Measured on: there", {"bf16": ("1 times", "holds here")})
    assert "there" in advice.rewritten(page, "Measured on: there", {"q8_0": ("3 times", "holds here")})


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(advice.AdviceError, match="no lines"):
        advice.rewritten("# Advice\n", "Measured on: here", {})


def test_the_page_in_the_repository_has_every_row() -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, cells = advice.kept(text)
    assert advice.rewritten(text, head or "", cells) == text, "run: python -m tests.benchmarks.advice --write"


def test_files_of_a_comparison_hold_what_compare_reads(tmp_path: Path) -> None:
    import yaml

    from tuner.userfiles import Written, side_given

    side = Side({"n_threads": 2, "flash_attn": "on"}, "q8_0")
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(side.document()), encoding="utf-8")
    given = side_given(str(path))
    assert isinstance(given, Written)
    assert (given.engine, given.variant, dict(given.settings)) == ("llama_cpp", "q8_0", dict(side.settings))
