"""What is printed of a search over several engines: each one's best, why it lost, the front, the ratio."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tuner.cli.by_engine import engine_parts
from tuner.cli.render import conclusion


def result(engine: str, variant: str, response_ms: float, mib: float, kl: float) -> dict[str, Any]:
    """A RESULT with the metrics that every one of a search has, more than fit into a line."""
    metrics = {
        "response_ms.p50": response_ms,
        "ttft_ms.p50": response_ms / 10,
        "tpot_ms.p50": response_ms / 140,
        "decode_tps.p50": 140_000 / response_ms,
        "prefill_tps.p50": 1280_000 / response_ms,
        "peak_rss_mib": mib,
        "kl_divergence": kl,
    }
    return {"engine": engine, "variant": variant, "config": {}, "metrics": metrics}


def best(engine: str, found: dict[str, Any] | None, lost: str | None) -> dict[str, Any]:
    return {"engine": engine, "best": found, "is_judged": True, "over_best": None, "lost": lost}


INT8 = result("onnxruntime", "int8_mixed", 661.6, 412, 0.0086)
SLOWER_INT8 = result("onnxruntime", "int8_mixed", 671.6, 411, 0.0086)
BF16 = result("llama_cpp", "bf16+q8_0", 1063.8, 390, 0.0011)
FP32 = result("transformers", "f32", 5204.1, 1271, 0.0000)
DOCUMENT: dict[str, Any] = {
    "objective": "response_ms",
    "engines": [
        best("llama_cpp", BF16, "1.61x as slow"),
        best("onnxruntime", INT8, None),
        best("openvino", None, "openvino is not installed: pip install 'cputune[openvino]'"),
        best("transformers", FP32, "7.87x as slow"),
    ],
    "reference": {**FP32, "ratio": 7.866},
    "pareto": [INT8, SLOWER_INT8, BF16, FP32],
}


def printed(document: dict[str, Any], width: int = 80) -> list[str]:
    console = Console(file=StringIO(), width=width, highlight=False, markup=False, emoji=False)
    for part in engine_parts(document):
        console.print(part)
    assert isinstance(console.file, StringIO)
    return [line.strip() for line in console.file.getvalue().splitlines()]


def rows(lines: list[str], engine: str) -> list[list[str]]:
    return [line.split() for line in lines if line.startswith(engine) and "lost" not in line]


def test_each_engine_has_its_best_and_the_losers_say_why():
    lines = printed(DOCUMENT)
    assert lines[0] == "The best of each engine by short rounds, times in ms"
    assert rows(lines, "onnxruntime")[0] == [
        "onnxruntime", "int8_mixed", "661.6", "66.2", "4.73", "412", "0.0086",
    ]  # fmt: skip
    assert rows(lines, "openvino") == [["openvino", *"-" * 6]]
    said = [line for line in lines if " lost: " in line]
    assert said == [
        "llama_cpp lost: 1.61x as slow.",
        "openvino lost: openvino is not installed: pip install 'cputune[openvino]'.",
        "transformers lost: 7.87x as slow.",
    ]


def test_the_ratio_to_the_reference_row_is_told():
    expected = "7.9x the speed of transformers f32 as it comes, by the search's own rounds."
    assert expected in printed(DOCUMENT)
    assert not [line for line in printed({**DOCUMENT, "reference": None}) if "as it comes" in line]


def test_the_front_has_one_line_for_a_variant_the_fastest():
    lines = printed(DOCUMENT)
    front = lines[lines.index("Pareto front of speed, memory and quality, by short rounds") :]
    assert rows(front, "onnxruntime") == [["onnxruntime", "int8_mixed", "661.6", "412", "0.0086"]]
    assert rows(front, "llama_cpp")[0][:3] == ["llama_cpp", "bf16+q8_0", "1063.8"]
    assert len(rows(front, "transformers")) == 1


@pytest.mark.parametrize("objective", ["response_ms", "decode_tps", "prefill_tps"])
def test_every_line_fits_into_80_columns(objective: str):
    """A cell that does not fit would go on in the next line, under numbers of other columns."""
    document = {**DOCUMENT, "objective": objective}
    assert max(map(len, printed(document))) <= 80
    assert printed(document) == printed(document, width=200)


def test_of_one_engine_nothing_is_said():
    assert printed({**DOCUMENT, "engines": DOCUMENT["engines"][:1]}) == []


@pytest.mark.parametrize(
    ("engine", "command"),
    [("llama_cpp", "cputune export p-1 "), ("openvino", "cputune serve --profile p-1 ")],
)
def test_what_comes_next_is_a_command_that_takes_the_engine(finished: Any, engine: str, command: str):
    """llama-server runs no profile of another engine, and `export` refuses to say that it does."""
    answer = finished[1]
    found = {**answer["best"], "engine": engine, "profile_id": "p-1"}
    lines = conclusion({**answer, "best": found})
    assert [line for line in lines if line.startswith(f"  {command}")]
    assert len([line for line in lines if "export" in line]) == (engine == "llama_cpp")
