"""A comparison says which of two is faster only where interleaved pairs of processes show it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from probes.effective import Effective
from probes.machine import Machine
from profiles.documents import profile_document
from profiles.errors import NotFoundError
from profiles.store import Store
from profiles.vocabulary import WORKLOADS, Config, Objective
from tests.support.flow import JUMP_S, Flow
from tests.support.surface import MODEL, space_of
from tuner.compare import PATIENT, CompareRequest, compare, decide
from tuner.engines.base import BOTH_PHASES
from tuner.engines.llama_cpp.describe import LlamaCpp
from tuner.errors import EngineUnavailableError, NothingFeasibleError, UsageError
from tuner.events import Event
from tuner.given import completed
from tuner.measurement.patience import Patience
from tuner.sides import remapped

TIME = Objective("response_ms")
RATE = Objective("decode_tps", "maximize")


def test_a_side_may_take_many_times_as_long_as_the_other():
    """Beside a neighbour a crowded one does, and that is what a user asks."""
    patience = Patience(PATIENT)
    patience.took(Config.of("simulated", "source", {"n_threads": 1}), "short", BOTH_PHASES, 0.1)
    crowded = Config.of("simulated", "source", {"n_threads": 2})
    assert patience.limit_s(crowded, "short", BOTH_PHASES) >= 60


# --- the verdict --------------------------------------------------------------------------------


def test_fewer_pairs_than_a_look_resolve_nothing():
    assert decide([0.5] * 5, TIME, final=False) is None
    interval, says = decide([0.5] * 5, TIME, final=True)
    assert says == "not resolved"
    assert interval.estimate == pytest.approx(1.6487, abs=1e-3)


def test_a_look_decides_and_names_the_better_one():
    assert decide([0.1] * 8, TIME, final=False)[1] == "b"
    assert decide([-0.1] * 8, TIME, final=False)[1] == "a"
    assert decide([0.1] * 8, RATE, final=False)[1] == "a"
    assert decide([0.1] * 7, TIME, final=False) is None


def test_no_difference_is_shown_not_assumed():
    assert decide([0.001, -0.001] * 4, TIME, final=False)[1] == "no difference"
    wide = [0.1, -0.1, 0.08, -0.07, 0.06, -0.05, 0.02, -0.01]
    assert decide(wide, TIME, final=False) is None
    assert decide(wide, TIME, final=True)[1] == "not resolved"


def test_equal_sides_are_seldom_told_apart():
    """Over all looks and an end at any pair the error stays what the looks allow: below 3.2 %."""
    draw = random.Random(7)
    wrong = 0
    for _ in range(400):
        logs = [draw.gauss(0.0, 0.1) for _ in range(16)]
        last = draw.randint(6, 16)
        found = [decide(logs[:n], TIME, final=n == last) for n in (8, 12, 16, last) if n <= last]
        wrong += any(one is not None and one[1] in ("a", "b") for one in found)
    assert wrong / 400 < 0.05


# --- what a side names --------------------------------------------------------------------------


@pytest.fixture
def shop() -> Any:
    machine = Machine(fingerprint="here", effective=Effective(cpus=(0, 1), cpu_count=2))
    notes: list[str] = []
    return SimpleNamespace(
        machine=machine,
        model=MODEL,
        workload=WORKLOADS["chat"],
        observer=lambda event: notes.append(event.message),
        notes=notes,
    )


@pytest.fixture
def space(shop: Any):
    return space_of(shop.machine, WORKLOADS["chat"])


def profile_of(settings: dict[str, Any], cpus: int | None) -> Any:
    facts = {} if cpus is None else {"document": {"machine": {"effective_cpus": cpus}}}
    return SimpleNamespace(fingerprint="there", config=Config.of("simulated", "q8_0", settings), facts=facts)


def test_threads_of_another_machine_keep_their_share(shop, space):
    there = {"n_threads": 4, "n_threads_batch": 8, "n_ubatch": 64, "placement": "node1"}
    found = remapped("p-1", profile_of(there, 8), shop, space)
    assert found.as_dict() == {"n_threads": 1, "n_threads_batch": 2, "n_ubatch": 64}
    (note,) = shop.notes
    for part in ("p-1", "8 CPUs", "n_threads 4 -> 1", "n_threads_batch 8 -> 2", "placement node1"):
        assert part in note


def test_threads_of_an_unknown_machine_are_cut_to_the_cpus_here(shop, space):
    found = remapped("p-1", profile_of({"n_threads": 1, "n_threads_batch": 8}, None), shop, space)
    assert found.as_dict() == {"n_threads": 1, "n_threads_batch": 2}


def test_a_profile_of_this_machine_is_taken_as_it_is(shop, space):
    own = profile_of({"n_threads": 1}, 8)
    own.fingerprint = "here"
    assert remapped("p-1", own, shop, space) == own.config
    assert shop.notes == []


def test_p18_more_threads_than_cpus_may_be_compared(shop, space):
    given = Config.of("simulated", "q8_0", {"n_threads": 4})
    found = completed("mine.yaml", given, shop, space)
    assert found.get("n_threads") == 4
    assert found.get("n_threads_batch") == 2


@pytest.mark.parametrize(
    ("variant", "settings", "parts"),
    [
        ("q8_0", {"n_thread": 1}, ("unknown setting 'n_thread'", "did you mean n_threads?")),
        ("q8", {}, ("unknown variant 'q8'", "did you mean q8_0?")),
        ("q8_0", {"n_threads": 0}, ("mine.yaml", "n_threads=0")),
        ("q8_0", {"n_ubatch": 0}, ("n_ubatch=0", "1 to 512")),
        ("q8_0", {"wait_policy": "lazy"}, ("wait_policy=lazy", "passive")),
        ("q8_0", {"type_v": "q8_0", "flash_attn": False}, ("type_v=q8_0", "flash_attn")),
    ],
)
def test_e09_e14_what_can_not_run_is_refused_before_it_is_loaded(shop, space, variant, settings, parts):
    with pytest.raises(UsageError) as caught:
        completed("mine.yaml", Config.of("simulated", variant, settings), shop, space)
    for part in parts:
        assert part in str(caught.value)


def test_yaml_s_on_and_off_are_understood(shop, space):
    found = completed("mine.yaml", Config.of("simulated", "q8_0", {"flash_attn": True}), shop, space)
    assert found.get("flash_attn") == "on"


# --- on the simulated engine --------------------------------------------------------------------


@pytest.fixture
def compared(flow_after: Flow, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Compare on the data folder of a search that has ended; the clock jumps after some pairs."""

    def run(
        a: str,
        b: str,
        *,
        pairs: int = 3,
        stop_at: int | None = None,
        exactly: int | None = None,
        **changes: Any,
    ) -> dict[str, Any]:
        jumped_s = 0.0
        flow_after.events = []

        def watch(event: Event) -> None:
            nonlocal jumped_s
            flow_after.events.append(event)
            if event.kind == "pair" and event.detail["pair"] == pairs:
                jumped_s = JUMP_S
            if event.kind == "pair" and event.detail["pair"] == stop_at:
                raise KeyboardInterrupt

        fields: dict[str, Any] = {"model": str(flow_after.model), "engines": ("simulated",), **changes}
        return compare(
            CompareRequest(a, b, pairs=exactly, **fields),
            home=flow_after.home,
            observer=watch,
            clock=lambda: time.monotonic() + jumped_s,
        )

    return run


def written(tmp_path: Path, **document: Any) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_the_best_is_better_than_the_default(compared, flow_after: Flow, workers):
    document = compared("default", "best", pairs=20)
    assert document["verdict"] == "b"
    assert document["metric"] == "response_ms"
    assert document["pairs"] == 8
    assert document["ratio"]["low"] > 1.0
    ratio = document["a"]["metrics"]["response_ms.p50"] / document["b"]["metrics"]["response_ms.p50"]
    assert document["ratio"]["estimate"] == pytest.approx(ratio, rel=1e-3)
    for side in ("a", "b"):
        assert {"engine", "variant", "bits_per_weight", "config", "metrics"} <= set(document[side])
        assert document[side]["metrics"]["peak_rss_mib"] > 0
    with flow_after.store() as store:
        study = next(s for s in store.studies() if s.name.startswith("compare-"))
        (kept,) = store.comparisons(study.id)
        assert (kept.verdict, kept.finished_at is not None) == ("b", True)
        assert kept.interval.estimate == document["ratio"]["estimate"]
        assert len(store.pairs(kept.id)) == 8
        assert str(study.status) == "confirmed"
    # Two first looks, then two fresh processes a pair.
    assert len(workers) == 2 + 16


def test_the_same_against_itself_is_no_winner(compared, set_world):
    set_world(cpus=2, noise=0.03)
    document = compared("default", "default", pairs=6)
    assert document["verdict"] in ("no difference", "not resolved")
    assert document["a"]["config"] == document["b"]["config"]


def test_p18_too_many_threads_are_measured_and_three_pairs_show_nothing(compared, tmp_path, set_world):
    set_world(cpus=2)
    path = written(tmp_path, engine="simulated", settings={"n_threads": 8, "n_threads_batch": 8})
    document = compared(path, "default")
    assert document["a"]["config"]["n_threads"] == 8
    assert document["ratio"]["estimate"] > 1.5
    assert (document["verdict"], document["pairs"]) == ("not resolved", 3)


def test_a_profile_from_elsewhere_is_brought_to_this_machine(compared, flow_after, finished, tmp_path):
    with flow_after.store() as store:
        profile = store.profile(finished[1]["best"]["profile_id"])
    document = profile_document(profile)
    document["machine"] = "elsewhere"
    document["config"]["settings"] |= {"n_threads": 64, "n_threads_batch": 64}
    document["facts"] = {}
    path = written(tmp_path, **document)
    found = compared(path, profile.id, model=None)
    cpus = finished[1]["machine"]["effective_cpus"]
    assert found["a"]["config"]["n_threads"] == cpus
    assert f"n_threads 64 -> {cpus}" in flow_after.notes
    assert found["model"]["digest"] == profile.model_digest
    assert found["b"]["name"] == profile.id


def test_an_interrupted_comparison_goes_on_from_its_pairs(compared, flow_after: Flow):
    with pytest.raises(KeyboardInterrupt):
        compared("default", "best", stop_at=2)
    with flow_after.store() as store:
        study = next(s for s in store.studies() if s.name.startswith("compare-"))
        assert str(study.status) == "interrupted"
        assert len(store.pairs(store.comparisons(study.id)[0].id)) == 2
    document = compared("default", "best")
    assert document["pairs"] == 3
    assert len(flow_after.of_kind("pair")) == 1


def test_so_many_pairs_as_asked_are_run_and_none_is_taken_from_before(compared, flow_after: Flow):
    with pytest.raises(KeyboardInterrupt):
        compared("default", "best", stop_at=1)
    document = compared("default", "best", pairs=1, exactly=2)
    assert (document["pairs"], document["verdict"]) == (2, "not resolved")
    (a, b), (c, d) = document["values"]
    assert document["ratio"]["estimate"] == pytest.approx((a / b * c / d) ** 0.5)
    assert len(flow_after.of_kind("pair")) == 2
    with flow_after.store() as store:
        assert len(store.pairs(document["comparison"])) == 2


def test_the_budget_ends_it_after_one_pair_unresolved(compared, flow_after: Flow):
    document = compared("default", "best", pairs=1)
    assert (document["verdict"], document["pairs"]) == ("not resolved", 1)
    assert flow_after.study().status == "provisional"


def test_a_side_that_does_not_run_is_named(compared, set_faults):
    set_faults({"source": "segv_on_load"})
    with pytest.raises(NothingFeasibleError, match=r"a \(default\) does not run: .*SIGSEGV"):
        compared("default", "best")


def test_a_side_whose_engine_does_not_run_here_is_said(compared, tmp_path, monkeypatch):
    monkeypatch.setattr(LlamaCpp, "probe_code", lambda _self: "import no_such_engine")
    path = written(tmp_path, engine="llama_cpp", settings={"n_threads": 1})
    with pytest.raises(EngineUnavailableError, match=r"mine\.yaml needs the engine llama_cpp: simulated run"):
        compared(path, "default")


def test_what_is_not_known_is_said(compared, flow_after: Flow, home):
    with pytest.raises(UsageError, match=r"'defalt': allowed are .*; did you mean default\?"):
        compared("defalt", "best")
    with pytest.raises(NotFoundError, match="p-nope"):
        compared("p-nope", "best")
    with pytest.raises(NothingFeasibleError, match=r"rag at near-lossless .* run cputune search"):
        compared("default", "best", workload=WORKLOADS["rag"])
    with pytest.raises(NothingFeasibleError, match="run cputune search"):
        compared("default", "best", workload=replace(WORKLOADS["chat"], objective="ttft_ms"))


def test_another_storage_is_its_own_record(compared, flow_after: Flow, tmp_path):
    elsewhere = str(tmp_path / "other.sqlite3")
    compared("default", "default", storage=elsewhere)
    with Store.open(elsewhere) as store:
        assert len(store.studies()) == 1
    with flow_after.store() as store:
        assert not any(s.name.startswith("compare-") for s in store.studies())
