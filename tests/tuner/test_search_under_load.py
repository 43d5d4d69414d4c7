"""`--load background`: both times are in the answer, which stands beside the quiet one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.records import StudyStatus
from tests.support.flow import Flow
from tuner.cli.render import conclusion
from tuner.home import Home
from tuner.measurement.neighbour import Neighbour

SMALL = {"variants": ("source",), "trials": 2, "space": {"wait_policy": ("default",)}}


@pytest.fixture
def neighbours(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The process ids of every neighbour; none may be left at the end."""
    started: list[Any] = []
    enter = Neighbour.__enter__

    def counting(neighbour: Neighbour) -> Neighbour:
        entered = enter(neighbour)
        started.append(neighbour.pid)
        return entered

    monkeypatch.setattr(Neighbour, "__enter__", counting)
    yield started
    assert [pid for pid in started if os.path.exists(f"/proc/{pid}")] == []


@pytest.fixture(scope="module")
def answered(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Flow, Any, Any]:
    """A data folder with a quiet answer and one under load to the same question, and both documents."""
    folder = tmp_path_factory.mktemp("loaded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        flow = Flow(Home(folder / "home"), tiny_model)
        quiet = flow.search(**SMALL)
        return flow, quiet, flow.search(busy_share=0.5, pairs=3, **SMALL)


def test_both_times_and_the_mix_are_in_the_document(answered):
    _, quiet, loaded = answered
    assert quiet["load"] == {"mode": "quiet"}
    load = loaded["load"]
    assert (load["mode"], load["busy_share"]) == ("background", 0.5)
    for side in ("baseline", "best"):
        assert load[side]["busy"] > 1.2 * load[side]["quiet"]
        assert load[side]["quiet"] == pytest.approx(loaded[side]["metrics"]["response_ms.p50"])
    # Whoever waits for all CPUs at once suffers most: the quiet winner is not this one.
    cpus = loaded["machine"]["effective_cpus"]
    assert quiet["best"]["config"]["n_threads"] == cpus
    assert loaded["best"]["config"]["n_threads"] < cpus


def test_the_report_says_both(answered):
    _, quiet, loaded = answered
    text = "\n".join(conclusion(loaded))
    assert "50 % of it quiet and 50 % beside a busy neighbour" in text
    for side in ("baseline", "best"):
        assert f"{loaded['load'][side]['busy']:.1f} ms beside the neighbour" in text
    assert "--load background" in text
    assert "neighbour" not in "\n".join(conclusion(quiet))


def test_the_profile_stands_beside_the_quiet_one(answered):
    flow, quiet, loaded = answered
    with flow.store() as store:
        profiles = [store.profile(d["best"]["profile_id"]) for d in (quiet, loaded)]
        assert [p.conditions for p in profiles] == ["quiet", "background"]
        study = store.study(quiet["study"])
        asked = profiles[0]
        best = store.best_profile(
            asked.fingerprint, asked.model_digest, asked.workload, study.objectives, asked.quality_level
        )
        assert best is not None
        assert best.id == profiles[0].id
    assert quiet["study"] == loaded["study"]


def test_each_question_gets_its_own_answer_again(answered, monkeypatch, tmp_path):
    flow, quiet, loaded = answered
    monkeypatch.setenv("CPUTUNE_LOCK", str(tmp_path / "measuring.lock"))
    again = {**SMALL, "trials": None, "bounded": False}
    for share, first in ((0.0, quiet), (0.5, loaded)):
        found = flow.search(busy_share=share, **again)
        assert found["measured_now"] is False
        assert found["best"]["profile_id"] == first["best"]["profile_id"]


def test_ctrl_c_beside_the_neighbour_leaves_none(flow: Flow, quick_quality, workers, neighbours, monkeypatch):
    def stop(_neighbour: Neighbour) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Neighbour, "ran_ns", stop)
    with pytest.raises(KeyboardInterrupt):
        flow.search(busy_share=0.5, **SMALL)
    assert len(neighbours) == 1
    assert flow.study().status is StudyStatus.INTERRUPTED


def test_one_cpu_is_said(flow: Flow, quick_quality, neighbours):
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})
    try:
        found = flow.search(busy_share=0.5, pairs=3, **SMALL)
    finally:
        os.sched_setaffinity(0, every)
    assert "one CPU" in flow.notes
    assert found["load"]["mode"] == "background"
