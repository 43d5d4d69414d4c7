"""`cputune compare`: its document, its table, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support.flow import Flow
from tuner.cli.documents import schemas
from tuner.cli.main import run
from tuner.cli.render import comparison_conclusion


def test_a_comparison_prints_one_document(flow_after: Flow, capsys):
    call = ["compare", "default", "best", "--model", "tiny", "--engines", "simulated", "--budget", "60s"]
    assert run([*call, "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["schema_version"] == 1
    assert {"metric", "a", "b", "ratio", "verdict", "pairs", "dropped_rounds"} <= set(document)
    assert set(document["ratio"]) == {"estimate", "low", "high", "confidence"}
    assert (document["verdict"], document["identical"]) == ("b", False)
    assert list(Draft202012Validator(schemas()["compare"]).iter_errors(document)) == []
    assert captured.err.count("pair ") == document["pairs"]


def test_a_profile_names_its_model_and_workload(flow_after: Flow, finished: tuple[Path, Any], capsys):
    profile = finished[1]["best"]["profile_id"]
    assert run(["compare", profile, profile, "--budget", "60s"]) == 0
    printed = capsys.readouterr().out
    assert f"a: {profile}" in printed
    assert "as a" in printed
    assert "no difference: they are shown to be within 2 %" in printed
    assert "Both sides are the same configuration: any difference is noise." in printed


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["default"], 2, ("B",)),
        (["default", "bset"], 2, ("'bset'", "did you mean best?")),
        (["default", "nowhere.yaml"], 2, ("nowhere.yaml", "No such file")),
        (["default", "best", "--budget", "1s"], 2, ("1s", "from 10 s")),
        (["default", "best", "--workload", "chatt"], 2, ("did you mean chat?",)),
        (["default", "best", "--engines", "simulatd"], 2, ("did you mean simulated?",)),
        (["default", "p-none"], 3, ("p-none",)),
        (["default", "best", "--engines", "simulated", "--workload", "rag"], 3, ("cputune search",)),
    ],
)
def test_what_can_not_be_compared_is_one_line(flow_after: Flow, capsys, arguments, code, parts):
    assert run(["compare", *arguments, *(["--model", "tiny"] if len(arguments) > 1 else [])]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    for part in ("cputune: ", *parts):
        assert part in line


def conclusion(verdict: str, conditions: str = "quiet", needed: int | None = None) -> str:
    document = {
        "metric": "response_ms",
        "a": {"name": "default"},
        "b": {"name": "best"},
        "ratio": {"estimate": 1.2, "low": 1.1, "high": 1.3, "confidence": 0.992},
        "verdict": verdict,
        "pairs": 8,
        "pairs_needed": needed,
        "dropped_rounds": 0,
        "elapsed_s": 61.0,
        "conditions": conditions,
        "comparison": 7,
        "identical": False,
    }
    return "\n".join(comparison_conclusion(document))


def test_the_conclusion_says_which_is_better_and_how_sure_that_is():
    assert "a over b is 1.200 (1.100 to 1.300 at 99.2 %): b (best) is better." in conclusion("b")
    assert "a (default) is better" in conclusion("a")
    assert conclusion("a").splitlines()[-1] == "See it again: cputune show c-7"
    assert "a longer --budget gives more" in conclusion("not resolved")
    assert "About 4 more pairs would resolve it: a longer" in conclusion("not resolved", needed=12)
    assert "About 82 more pairs would resolve it, and a comparison ends at 16" in conclusion(
        "not resolved", needed=90
    )
    assert "under load" in conclusion("no difference", "loaded")
