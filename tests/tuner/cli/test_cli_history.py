"""`cputune history`: searches over time, by what was asked, and what changed."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from probes.machine import Machine
from profiles.records import Promotion, PromotionAction, StudyRecord, StudySpec, StudyStatus
from profiles.store import Store, owner_token
from profiles.vocabulary import WORKLOADS, ModelInfo, Objective
from tests.support.commands import command
from tuner.cli.main import run
from tuner.home import Home

SPEC = StudySpec(
    fingerprint="f00d" * 8,
    model_digest="ab" * 32,
    workload=WORKLOADS["chat"],
    engines=("simulated",),
    space_hash="beef",
    storage_name="chat",
    name="tiny-chat",
    objectives=(Objective("response_ms"),),
    quality_level="near-lossless",
    environment={"kernel": "6.1"},
    engine_builds={"simulated": "1.0"},
)
MODEL = ModelInfo(
    "tiny", "ab" * 32, "gguf", "llama", 1000, 2, 64, 4, 2, 16, 16, 100, 2048, 600, (("f32", 40),), 4.8
)


@pytest.fixture
def store(home: Any) -> Iterator[Store]:
    with Store.open(Home(home).database) as store:
        for fingerprint, name in ((SPEC.fingerprint, "box"), ("beef" * 8, "other-box")):
            document = {"schema_version": 1, "fingerprint": fingerprint}
            store.save_machine(Machine.from_json(document), name)
        store.save_model(MODEL, "x.gguf", "tiny")
        store.save_model(replace(MODEL, digest="cd" * 32), "y.gguf", "other")
        yield store


def ended(
    store: Store, ms: float, status: StudyStatus = StudyStatus.CONFIRMED, **changes: Any
) -> StudyRecord:
    """A study that ended with a best of so many milliseconds."""
    config = changes.pop("config", {"n_threads": 1})
    study = store.open_study(replace(SPEC, **changes), owner_token(), fresh=True)
    best = {
        "engine": "simulated", "variant": "q8_0", "config": config,
        "metrics": {"response_ms.p50": ms, "ttft_ms.p50": 10.0}, "profile_id": f"p-{study.id[2:]}",
    }  # fmt: skip
    speedup = {"ratio": 1.25, "low": 1.2, "high": 1.3, "confidence": 0.95}
    return store.finish_study(study.id, status, {"best": best, "speedup": speedup, "conditions": "quiet"})


@pytest.fixture
def text(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def printed(*arguments: str) -> str:
        assert run(["history", *arguments]) == 0
        return capsys.readouterr().out

    return printed


def rows(text: Callable[..., str], *arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(text(*arguments, "--json"))["studies"])


def test_decisions_of_another_workload_take_no_place_in_the_list(store: Store, text):
    for name in ("rag", "chat", "chat"):
        store.record_promotion(
            Promotion(
                fingerprint=SPEC.fingerprint, model_digest=SPEC.model_digest, workload=WORKLOADS[name],
                action=PromotionAction.REFUSED, running_id=None, other_id=None, reason="no gain",
            )
        )  # fmt: skip
    ended(store, 800.0)
    ended(store, 90.0, workload=WORKLOADS["rag"], storage_name="rag")
    for name, count in (("rag", 1), ("chat", 2)):
        listed = json.loads(text("--workload", name, "--limit", "2", "--json"))["promotions"]
        assert [one["workload"] for one in listed] == [name] * count


def test_searches_of_one_question_stand_together_with_their_trend(store: Store, text):
    for ms in (800.0, 700.0, 600.0):
        ended(store, ms)
    ended(store, 90.0, workload=WORKLOADS["rag"], storage_name="rag")
    lines = text().splitlines()
    assert sum("tiny, chat, response_ms, near-lossless on box (f00df00d)" in line for line in lines) == 1
    assert "  █▅▁  800.0 ms -> 600.0 ms (-25 %)" in lines
    best = [line.split()[3] for line in lines if line.startswith("  s-")]
    assert best == ["90.0", "600.0", "700.0", "800.0"]


def test_every_line_fits_80_characters(store: Store, text):
    ended(store, 123456.7)
    ended(store, 54321.0, config=dict.fromkeys(("n_threads", "flash_attn", "type_k"), "a_long_value"))
    ended(store, 1.0, status=StudyStatus.INFEASIBLE, quality_level="balanced")
    printed = text()
    assert "since the one before:" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_what_changed_stands_under_the_search(store: Store, text):
    ended(store, 800.0)
    after = ended(
        store,
        640.0,
        engine_builds={"simulated": "1.1"},
        environment={"kernel": "6.2"},
        config={"n_threads": 2},
    )
    (newest, oldest) = rows(text)
    assert (newest["study"], oldest["changes"]) == (after.id, [])
    assert newest["changes"] == [
        {"what": "build of simulated", "before": "1.0", "after": "1.1"},
        {"what": "kernel", "before": "6.1", "after": "6.2"},
        {"what": "n_threads", "before": 1, "after": 2},
        {"what": "response_ms.p50", "before": 800.0, "after": 640.0},
    ]
    folded = " ".join(text().split())
    assert "build of simulated 1.0 -> 1.1; kernel 6.1 -> 6.2; n_threads 1 -> 2" in folded
    assert "response_ms.p50 800.0 ms -> 640.0 ms (-20.0 %)" in folded


def test_noise_is_no_change(store: Store, text):
    ended(store, 800.0)
    ended(store, 801.0)
    assert rows(text)[0]["changes"] == []


def test_another_question_is_no_neighbour(store: Store, text):
    ended(store, 800.0)
    ended(store, 640.0, quality_level="balanced")
    found = rows(text)
    assert found[0]["question"] != found[1]["question"]
    assert found[0]["changes"] == []


def test_filters(store: Store, text):
    chat = ended(store, 1.0)
    rag = ended(store, 1.0, workload=WORKLOADS["rag"], storage_name="rag")
    other = ended(store, 1.0, model_digest="cd" * 32, storage_name="other")
    away = ended(store, 1.0, fingerprint="beef" * 8, storage_name="away")

    def found(*arguments: str) -> list[str]:
        return [row["study"] for row in rows(text, *arguments)]

    assert found() == [away.id, other.id, rag.id, chat.id]
    assert found("--model", "other") == [other.id]
    assert found("--workload", "rag") == [rag.id]
    assert found("--machine", "other-box") == found("--machine", "beef") == [away.id]
    assert found("--model", "tiny", "--workload", "chat", "--machine", "box") == [chat.id]
    assert found("--limit", "1") == [away.id]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--model", "tyni"), "no model 'tyni'; near: tiny"),
        (("--machine", "nowhere"), "no machine is called 'nowhere'; known: "),
        (("--workload", "chess"), "nothing of the workload 'chess'; known are: chat"),
        (("--diff", "s-x1", "s-x2"), "no study 's-x1'"),
    ],
)
def test_what_is_unknown_is_one_line(store: Store, capsys, arguments: tuple[str, ...], expected: str):
    ended(store, 1.0)
    assert run(["history", *arguments]) == 3
    assert expected in capsys.readouterr().err


def test_s02_running_and_interrupted_searches_are_named(store: Store, text):
    running = store.open_study(SPEC, owner_token())
    gone = store.open_study(replace(SPEC, storage_name="gone"), "gone:1:1")
    found = {row["study"]: row["status"] for row in rows(text)}
    assert found == {running.id: "running", gone.id: "interrupted"}
    printed = text()
    assert "running" in printed
    assert "interrupted" in printed


def test_a_search_without_an_answer_is_no_step_of_the_trend(store: Store, text):
    ended(store, 800.0)
    store.open_study(SPEC, "gone:1:1", fresh=True)
    ended(store, 400.0)
    assert "█▁  800.0 ms -> 400.0 ms (-50 %)" in text()
    assert [change["what"] for change in rows(text)[0]["changes"]] == ["response_ms.p50"]


def test_the_difference_of_two(store: Store, text):
    first, second = ended(store, 800.0), ended(store, 801.0, environment={"kernel": "6.2"})
    document = json.loads(text("--diff", first.id, second.id, "--json"))
    assert (document["a"]["study"], document["b"]["study"]) == (first.id, second.id)
    assert document["same_question"] is True
    assert [one["what"] for one in document["changes"]] == ["kernel", "response_ms.p50"]
    printed = text("--diff", first.id, second.id)
    assert "  kernel 6.1 -> 6.2" in printed.splitlines()
    assert "  response_ms.p50 800.0 ms -> 801.0 ms (+0.1 %)" in printed.splitlines()
    assert "Nothing is different" in text("--diff", first.id, first.id)


def test_different_questions_are_said_to_be(store: Store, text):
    first = ended(store, 800.0)
    second = ended(store, 1.0, workload=WORKLOADS["rag"], storage_name="rag")
    printed = text("--diff", first.id, second.id)
    assert "They answer different questions" in printed
    assert "  prompt_tokens 128 -> 1024" in printed.splitlines()


def test_a_terminal_of_ascii(store: Store, monkeypatch: pytest.MonkeyPatch):
    ended(store, 800.0)
    ended(store, 400.0)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "#_  800.0 ms -> 400.0 ms" in command("history").stdout


def test_many_searches_take_as_many_queries_as_one(store: Store):
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from tuner.history import searches

    def queries() -> int:
        seen: list[str] = []

        def note(_c: object, _k: object, statement: str, *_: object) -> None:
            seen.append(statement)

        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert searches(store)
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        assert not [one for one in seen if "cputune_round" in one or "cputune_measurement" in one]
        return len([one for one in seen if one.startswith("SELECT")])

    ended(store, 800.0)
    first = queries()
    for number in range(20):
        ended(store, 800.0 - number)
    assert queries() == first
