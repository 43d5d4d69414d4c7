"""`cputune show` says why an answer won, in 80 columns and as a document."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profiles.store import Store
from tests.profiles.store_examples import MACHINE, MODEL, PROFILE
from tests.support.flow import Flow
from tests.support.surface import LOSSLESS, RUINED
from tuner.cli.explained import explanation_report
from tuner.cli.main import run
from tuner.cli.show import trial_lines
from tuner.engines.simulated import faults
from tuner.home import Home
from tuner.search.recorded import recorded
from tuner.workshop import Workshop


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


@pytest.fixture(scope="module")
def searched(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A data folder after a search in which bf16 crashed and q4_0 was ruined, and its answer."""
    folder = tmp_path_factory.mktemp("explained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        patch.setenv(faults.VARIABLE, json.dumps({"bf16": "segv_on_load"}))
        patch.setattr(Workshop, "quality", lambda _, key: RUINED if key.variant == "q4_0" else LOSSLESS)
        flow = Flow(Home(folder / "home"), tiny_model)
        return flow.home.root, flow.search(trials=16)


@pytest.fixture
def after(searched: tuple[Path, dict[str, Any]], home: Path) -> dict[str, Any]:
    """The answer of that search, in whose data folder the commands run."""
    shutil.copytree(searched[0], home)
    return searched[1]


@pytest.fixture
def shown(after: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What `show` says of it."""
    assert run(["show", after["study"], "--json", "--trials"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_each_setting_is_worth_something_or_is_said_not_to_be_measured(shown: dict[str, Any]):
    explained = shown["explanation"]
    best = shown["answer"]["best"]
    assert explained["best"]["config"] == best["config"]
    by_name = {one["setting"]: one for one in explained["settings"]}
    assert set(by_name) == {"variant", *best["config"]}
    assert sum(one["importance"] or 0.0 for one in by_name.values()) == pytest.approx(1.0)
    others = [other for one in by_name.values() for other in one["alternatives"]]
    assert others
    for other in others:
        assert other["low"] <= other["ratio"] <= other["high"]
        assert other["verdict"] in ("worse", "better", "noise")
    assert sum(explained["phase_shares"].values()) == pytest.approx(1.0)


def test_what_is_faster_but_misses_the_level_is_said_with_its_quality(shown: dict[str, Any]):
    (rival,) = [r for r in shown["explanation"]["rivals"] if r["variant"] == "q4_0" and not r["changes"]]
    assert rival["speed"] > 1.1
    assert rival["reason"] == "misses near-lossless: KL 0.3000, top-1 0.700"
    texts = [line["text"] for line in shown["explanation"]["next"]]
    assert any(text.startswith("q4_0 would be") and "KL 0.3000" in text for text in texts)


def test_the_text_fits_into_80_columns(shown: dict[str, Any], narrow, capsys):
    explanation_report(shown["explanation"])
    lines = trial_lines(shown["trials"], 80)
    printed = "\n".join([capsys.readouterr().out, *lines])
    assert max(map(len, printed.splitlines())) <= 80
    assert "Why it won" in printed
    assert "within the noise" in printed or "x slower" in printed
    # No setting is broken in two.
    for trial in shown["trials"]:
        for name, value in trial["config"].items():
            word = f"{name}={'on' if value is True else 'off' if value is False else value}"
            assert word in printed or value == shown["trials"][0]["config"][name]


def test_lost_trials_are_counted_with_what_only_they_had(
    shown: dict[str, Any], after: dict[str, Any], narrow: None, capsys
):
    (crash,) = shown["explanation"]["lost"]
    assert (crash["status"], crash["blamed"]) == ("crash", {"variant": "bf16"})
    assert run(["show", after["study"]]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{crash['count']} crash: " in printed
    assert "only they had variant=bf16" in printed


def test_trials_of_several_engines_are_told_apart(shown: dict[str, Any]):
    trials = shown["trials"]
    assert "simulated" not in "".join(trial_lines(trials, None))
    printed = "".join(trial_lines([*trials, {**trials[0], "engine": "llama_cpp"}], None))
    assert (printed.count("simulated"), printed.count("llama_cpp")) == (len(trials), 1)


@pytest.mark.parametrize("command", [["show"], ["plot", "--out", "x.html"]])
def test_a_profile_that_came_without_its_study_is_said_to_be_one(home: Path, command: list[str], capsys):
    with Store.open(Home(home).database) as store:
        store.save_machine(MACHINE, "box")
        store.save_model(MODEL, "x.gguf", "tiny")
        profile = store.publish(PROFILE)
    assert run([*command, profile.id]) == 2
    told = capsys.readouterr().err
    assert told == f"cputune: {profile.id} came from another store without its study: name a study\n"


def test_a_study_of_an_engine_that_is_gone_is_shown_without_the_why(
    after: dict[str, Any], home: Path, capsys
):
    with closing(sqlite3.connect(Home(home).database)) as connection, connection:
        connection.execute("UPDATE cputune_study SET engines = '[\"gone\"]'")
    assert run(["show", after["study"], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["explanation"] is None
    assert "gone" in document["note"]
    assert run(["show", after["study"]]) == 0
    assert "can't be explained here" in capsys.readouterr().out


def test_where_load_came_with_the_confirmation_the_rounds_before_explain(flow_after: Flow):
    with flow_after.store() as store:
        (study,) = store.studies(searches_only=True)
        before = recorded(store, study).ledger.ranked()
        store.finish_study(study.id, study.status, {**study.result, "conditions": "loaded"})
        after = recorded(store, store.study(study.id)).ledger.ranked()
    assert [estimate.config for estimate in after] == [estimate.config for estimate in before] != []
