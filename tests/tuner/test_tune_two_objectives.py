"""A search for two objectives, from the request to the store, the printed table and Optuna's index."""

import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest

from profiles.vocabulary import Objective
from tests.support.flow import Flow
from tests.support.surface import LOSSLESS, RUINED
from tuner.cli.main import run
from tuner.home import Home
from tuner.workshop import Workshop

BOTH = (Objective("response_ms"), Objective("ttft_ms"))


@pytest.fixture(scope="module")
def searched(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """On the simulated surface bf16 prefills fastest and q8_0 answers fastest."""
    folder = tmp_path_factory.mktemp("front")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        patch.setattr(Workshop, "quality", lambda _, key: RUINED if key.variant == "q4_0" else LOSSLESS)
        flow = Flow(Home(folder / "home"), tiny_model)
        return flow.home.root, flow.search(second_objective="ttft_ms", trials=10)


@pytest.fixture
def answer(searched: tuple[Path, dict[str, Any]], home: Path) -> dict[str, Any]:
    """The answer of that search, in a copy of its data folder."""
    shutil.copytree(searched[0], home)
    return searched[1]


def test_the_answer_has_the_front_and_the_first_objective_decides(flow: Flow, answer: dict[str, Any]):
    assert answer["objectives"] == ["response_ms", "ttft_ms"]
    front = answer["front"]
    pairs = [(m["metrics"]["response_ms.p50"], m["metrics"]["ttft_ms.p50"]) for m in front]
    assert len(pairs) >= 2
    assert pairs == sorted(pairs)
    assert [ttft_ms for _, ttft_ms in pairs] == sorted((ttft_ms for _, ttft_ms in pairs), reverse=True)
    assert front[0]["variant"] == answer["best"]["variant"] == "q8_0"
    assert "q4_0" not in {member["variant"] for member in front}
    assert {"engine", "variant", "bits_per_weight", "config", "metrics"} <= set(front[0])


def test_it_is_another_question_than_the_first_objective_alone(flow: Flow, answer: dict[str, Any], capsys):
    with flow.store() as store:
        assert store.profile(answer["best"]["profile_id"]).objectives == BOTH
    call = ["search", "--model", "tiny", "--engines", "simulated", "--objective", "response_ms,ttft_ms"]
    assert run(call) == 0
    printed = capsys.readouterr().out
    assert "Pareto front" in printed
    assert answer["best"]["profile_id"] in printed
    assert flow.request().objectives == BOTH[:1]


def test_the_index_has_a_direction_for_each(flow: Flow, answer: dict[str, Any]):
    with flow.store() as store:
        study = optuna.load_study(study_name=store.study(answer["study"]).storage_name, storage=store.url)
    assert len(study.directions) == 2
    assert study.metric_names == ["response_ms", "ttft_ms"]
    assert study.best_trials


def test_a_page_shows_the_front_of_both(flow: Flow, answer: dict[str, Any], tmp_path, capsys):
    pytest.importorskip("plotly")
    out = tmp_path / "a.html"
    assert run(["plot", answer["study"], "--out", str(out)]) == 0
    assert "Pareto front of response_ms and ttft_ms" in out.read_text(encoding="utf-8")
