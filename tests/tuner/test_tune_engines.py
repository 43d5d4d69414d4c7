"""A search over several engines from the request to what is printed, one of them dying when it is tried."""

from __future__ import annotations

import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.support.flow import Flow
from tests.support.surface import LOSSLESS
from tuner import engines
from tuner.cli.main import run
from tuner.engines.simulated.describe import Simulated
from tuner.home import Home
from tuner.workshop import Workshop

ASKED = ("simulated", "second", "dying")


class Second(Simulated):
    """Another engine that behaves alike: it is tuned as well, and one of both loses by a hair."""

    name = "second"


class Dying(Simulated):
    """One that this CPU can't run."""

    name = "dying"

    def probe_code(self) -> str:
        return "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The three of them, the second as the reference."""
    for engine in (Second, Dying):
        monkeypatch.setitem(engines.BUILT_IN, engine.name, f"{__name__}:{engine.__name__}")
    monkeypatch.setattr("tuner.crew.REFERENCE", Second.name)


@pytest.fixture(scope="module")
def searched(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Flow, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("engines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        patch.setattr(Workshop, "quality", lambda _shop, _key: LOSSLESS)
        for engine in (Second, Dying):
            patch.setitem(engines.BUILT_IN, engine.name, f"{__name__}:{engine.__name__}")
        patch.setattr("tuner.crew.REFERENCE", Second.name)
        flow = Flow(Home(folder / "home"), tiny_model)
        return flow, flow.search(engines=ASKED, variants=("source", "q8_0"), trials=8, budget_s=300.0)


def test_the_document_has_the_best_of_each_and_the_ratio_to_the_reference(
    searched: tuple[Flow, dict[str, Any]],
):
    document = searched[1]
    won = document["best"]["engine"]
    assert [one["engine"] for one in document["engines"]] == ["simulated", "second"]
    for one in document["engines"]:
        assert one["best"]["engine"] == one["engine"]
        assert (one["lost"] is None) == (one["engine"] == won), one
    reference = document["reference"]
    assert (reference["engine"], reference["variant"]) == ("second", "source")
    # It behaves as the baseline does, which is measured in pairs.
    assert reference["ratio"] == pytest.approx(document["speedup"]["ratio"], rel=0.1)


def test_nothing_on_the_front_is_bettered_by_another_one(searched: tuple[Flow, dict[str, Any]]):
    document = searched[1]
    names = ("response_ms.p50", "peak_rss_mib", "kl_divergence")
    front = [tuple(member["metrics"][name] for name in names) for member in document["pareto"]]
    assert front == sorted(front)
    for one, other in combinations(front, 2):
        assert any(a < b for a, b in zip(one, other, strict=True))
        assert any(a > b for a, b in zip(one, other, strict=True))
    best = min((one["best"]["metrics"] for one in document["engines"]), key=lambda m: m[names[0]])
    assert front[0][0] == pytest.approx(best[names[0]])


def test_k01_an_engine_that_dies_costs_one_line(searched: tuple[Flow, dict[str, Any]]):
    said = [line for line in searched[0].notes.splitlines() if "dying" in line]
    assert len(said) == 1
    assert said[0].startswith("not used: dying: this build needs instructions that the CPU lacks")


@pytest.mark.usefixtures("registered")
def test_the_report_shows_engines_reference_and_front(
    searched: tuple[Flow, dict[str, Any]], home: Path, capsys: pytest.CaptureFixture[str]
):
    flow, document = searched
    shutil.copytree(flow.home.root, home)
    assert run(["show", document["study"]]) == 0
    printed = capsys.readouterr().out
    (lost,) = (one for one in document["engines"] if one["lost"])
    for part in (
        "The best of each engine",
        f"{lost['engine']} lost: {lost['lost']}.",
        f"{document['reference']['ratio']:.1f}x the speed of second source as it comes",
        "Pareto front of speed, memory and quality, by short rounds",
    ):
        assert part in printed
