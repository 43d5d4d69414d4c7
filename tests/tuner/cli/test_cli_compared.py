"""Comparisons that were measured: listed in the history, shown again in full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from profiles.records import CHECK_SPACE, COMPARISON_SPACE
from profiles.store import Store, owner_token
from profiles.vocabulary import WORKLOADS, Interval
from tests.profiles.store_examples import DEFAULT, FAST, MACHINE, MODEL, SPEC
from tuner.cli.documents import schemas
from tuner.cli.main import run
from tuner.home import Home


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """One that a search and a user have each compared in."""
    with Store.open(Home(home).database) as store:
        store.save_machine(MACHINE, "box")
        store.save_model(MODEL, "x.gguf", "tiny")
        searched = store.open_study(SPEC, owner_token())
        store.start_comparison(searched.id, DEFAULT, FAST, "response_ms")
        asked = replace(SPEC, space_hash=COMPARISON_SPACE, storage_name="compare")
        study = store.open_study(asked, owner_token())
        comparison = store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
        for a in (1000.0, 1100.0, 1200.0):
            store.add_pair(comparison.id, [a], [800.0])
        store.add_pair(comparison.id, [9.0], [9.0], dropped="steal")
        store.finish_comparison(comparison.id, Interval(1.375, 1.25, 1.5, 0.984), "b")
        yield store


def test_the_history_lists_what_a_user_compared(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["history"]) == 0
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith("  c-")]
    assert line.startswith("  c-2 ")
    assert line.endswith("tiny, chat: a/b 1.375 (1.250 to 1.500), b is better")
    assert max(map(len, printed.splitlines())) <= 90
    assert run(["history", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(Draft202012Validator(schemas()["history"]).iter_errors(document)) == []
    (row,) = document["comparisons"]
    assert (row["comparison"], row["pairs"], row["a"]["value"]) == ("c-2", 3, 1100.0)


def test_a_daemon_s_checks_are_not_listed_but_shown(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    study = store.open_study(replace(SPEC, space_hash=CHECK_SPACE, storage_name="check"), owner_token())
    check = store.start_comparison(study.id, DEFAULT, FAST, "response_ms")
    store.finish_comparison(check.id, Interval(1.0, 0.9, 1.1, 0.984), "undecided")
    assert run(["history", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["comparison"] for row in document["comparisons"]] == ["c-2"]
    assert study.id not in [row["study"] for row in document["studies"]]
    assert run(["show", f"c-{check.id}"]) == 0


def test_history_s_filters_hold_for_comparisons(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.save_model(replace(MODEL, digest="cd" * 32), "y.gguf", "other")
    for arguments, count in ((("--model", "tiny"), 1), (("--model", "other"), 0), (("--machine", "box"), 1)):
        assert run(["history", *arguments, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["comparisons"]) == count


def test_a_workload_that_was_only_compared_is_known(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    rag = replace(SPEC, space_hash=COMPARISON_SPACE, storage_name="rag", workload=WORKLOADS["rag"])
    store.start_comparison(store.open_study(rag, owner_token()).id, DEFAULT, FAST, "response_ms")
    assert run(["history", "--workload", "rag"]) == 0
    assert "tiny, rag: not ended" in capsys.readouterr().out
    assert run(["history", "--workload", "rag", "--model", "tiny", "--machine", "box"]) == 0
    store.save_model(replace(MODEL, digest="cd" * 32), "y.gguf", "other")
    capsys.readouterr()
    assert run(["history", "--model", "other"]) == 0
    assert capsys.readouterr().out == "Nothing here matches: cputune history lists everything.\n"


def test_one_is_shown_with_its_pairs(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "c-2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tiny, chat on box"
    assert "a  simulated source  response_ms 1100.0 ms" in lines
    assert "response_ms: a over b is 1.375 (1.250 to 1.500 at 98.4 %): b is better." in lines
    assert [line.split()[-1] for line in lines if line.startswith("  pair")] == ["1.250", "1.375", "1.500"]
    assert run(["show", "c-2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(Draft202012Validator(schemas()["show-comparison"]).iter_errors(document)) == []
    assert document["values"] == [[1000.0, 800.0], [1100.0, 800.0], [1200.0, 800.0]]


def test_that_of_a_search_is_shown_though_not_ended(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "c-1"]) == 0
    assert "Not ended: 0 pairs of processes so far." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wanted", "code", "says"),
    [("c-77", 3, "no comparison c-77; the newest is c-2"), ("c-x", 2, "'c-x' names no comparison")],
)
def test_an_unknown_one_is_one_line(
    wanted: str, code: int, says: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", wanted]) == code
    answer = capsys.readouterr()
    assert (answer.out, len(answer.err.splitlines())) == ("", 1)
    assert says in answer.err
