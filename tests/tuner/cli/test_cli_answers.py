"""What the commands print of a search that has ended: documents for programs, tables for people."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.flow import Flow
from tuner.cli.main import run
from tuner.cli.render import conclusion, speedup_line
from tuner.engines import BUILT_IN

Json = Callable[..., dict[str, Any]]


@pytest.fixture
def text(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints that succeeds."""

    def printed(*arguments: str) -> str:
        assert run(list(arguments)) == 0
        return capsys.readouterr().out

    return printed


@pytest.fixture
def document(text: Callable[..., str]) -> Json:
    """The document that a command prints with --json, and nothing else."""

    def parsed(*arguments: str) -> dict[str, Any]:
        found = json.loads(text(*arguments, "--json"))
        assert found["schema_version"] == 1
        return dict(found)

    return parsed


def test_a_known_answer_is_printed_again(flow_after: Flow, finished: Any, document: Json, text):
    call = ("search", "--model", "tiny", "--engines", "simulated")
    known = document(*call)
    assert known == {"schema_version": 1, **finished[1], "measured_now": False}
    printed = text(*call)
    best = finished[1]["best"]
    for part in ("default", "best", best["variant"], best["profile_id"], "x the speed of the default"):
        assert part in printed
    # A search that ended just now does not say so, nor does `show`.
    assert "This was known: nothing was measured now." in printed
    assert "This was known" not in "".join(conclusion(finished[1]))
    assert "This was known" not in text("show", best["profile_id"])
    assert f"cputune show {best['profile_id']}" in printed


def test_a_search_that_ended_with_time_left_says_why(finished: Any):
    why = "nothing more than 1 % better is likely"
    assert f"It ended with time left: {why}." in conclusion({**finished[1], "ended": why})
    assert not [line for line in conclusion({**finished[1], "ended": None}) if "time left" in line]


def test_a_study_and_a_profile_are_shown(flow_after: Flow, finished: Any, document: Json, text):
    study, profile = finished[1]["study"], finished[1]["best"]["profile_id"]
    shown = document("show", study, "--trials")
    assert shown["study"] == study
    assert shown["answer"]["speedup"] == finished[1]["speedup"]
    assert len(shown["trials"]) == sum(shown["trial_counts"].values())
    assert {"number", "status", "reason", "config", "value", "metrics"} <= set(shown["trials"][0])
    assert document("show", profile)["profile"]["id"] == profile
    assert document("show", study[:6])["study"] == study
    assert profile in text("show", profile)
    assert "complete" in text("show", study, "--trials")


def test_history_lists_searches_with_their_speed_up(flow_after: Flow, finished: Any, document: Json, text):
    listed = document("history")["studies"]
    assert [row["study"] for row in listed] == [finished[1]["study"]]
    assert listed[0]["speedup"] == finished[1]["speedup"]
    assert listed[0]["profile_id"] == finished[1]["best"]["profile_id"]
    assert finished[1]["study"] in text("history")


def test_history_of_nothing_says_how_to_begin(home: Any, document: Json, text):
    assert document("history") == {"schema_version": 1, "studies": [], "promotions": [], "comparisons": []}
    assert "cputune search" in text("history")
    assert "cputune models add" in text("models", "list")
    assert document("models", "list") == {"schema_version": 1, "models": []}


def test_the_next_command_can_be_pasted_whatever_a_model_is_called(flow: Flow, text):
    assert text("models", "add", str(flow.model), "--name", "my model").endswith(
        "Next: cputune search --model 'my model'\n"
    )


def test_a_model_is_added_listed_and_prepared(flow: Flow, document: Json, text):
    added = document("models", "add", str(flow.model), "--name", "mine")
    assert (added["name"], added["architecture"]) == ("mine", "llama")
    made = document("models", "prepare", "mine", "--engines", "simulated", "--variants", "q8_0")["variants"]
    assert [(row["variant"], row["reason"]) for row in made] == [("q8_0", None), ("f16", None)]
    listed = document("models", "list")["models"]
    assert set(listed[0]["variants"]) == {"q8_0", "f16"}
    assert "mine" in text("models", "list")
    assert "q8_0" in text("models", "prepare", "mine", "--engines", "simulated", "--variants", "q8_0")


def test_the_engines_with_what_they_make(home: Any, document: Json, text, monkeypatch: pytest.MonkeyPatch):
    few = {name: BUILT_IN[name] for name in ("llama_cpp", "simulated")}
    monkeypatch.setattr("tuner.engines.BUILT_IN", few)
    rows = {row["name"]: row for row in document("engines")["engines"]}
    assert set(rows) >= {"simulated", "llama_cpp"}
    for row in rows.values():
        assert {"name", "available", "version", "reason", "variants"} <= set(row)
        assert row["available"] == (row["reason"] is None)
    assert rows["simulated"]["variants"][0] == "source"
    assert "simulated" in text("engines")


def test_a_note_is_one_line_however_long(flow: Flow, quick_quality: Any, capsys):
    assert run(["search", "--model", str(flow.model), "--engines", "simulated", "--trials", "1",
                "--variants", "source", "--budget", "10s", "--json"]) == 0  # fmt: skip
    out = capsys.readouterr()
    assert json.loads(out.out)["status"] == "no_gain"
    assert any("CPUs" in line and line.endswith("simulated 1") for line in out.err.splitlines())


@pytest.mark.parametrize(
    ("pairs", "begin"),
    [(3, "3 pairs are too few for a claim, 5 are needed: "), (8, "No gain is shown: ")],
)
def test_where_no_gain_is_claimed_that_comes_first_and_why(pairs: int, begin: str):
    speedup = {"ratio": 1.94, "low": 1.85, "high": 1.97, "confidence": 0.75, "pairs": pairs}
    assert speedup_line("no_gain", speedup) == (
        f"{begin}the default is published."
        f" What came next reached 1.94x its speed (1.85 to 1.97 at 75.0 %, {pairs} pairs)."
    )
    assert f"{begin}keep your command." in speedup_line("no_gain", speedup, "your command")
