"""The whole flow with the simulated engine: what it answers, when it measures, what it publishes."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from profiles.records import ProfileStatus, StudyStatus
from profiles.vocabulary import QUALITY_LEVELS, Quality, TrialStatus, Workload
from tests.support.flow import Flow
from tests.support.surface import RUINED
from tuner import setup
from tuner.engines.base import Dimension
from tuner.errors import UsageError
from tuner.measurement.isolation import Worker
from tuner.workshop import Workshop

SEARCH_KEYS = {
    "study", "status", "machine", "model", "workload", "objective", "quality", "baseline", "best", "speedup",
    "trials", "dropped_rounds", "elapsed_s",
}  # fmt: skip
RESULT_KEYS = {"engine", "variant", "bits_per_weight", "config", "metrics"}


def test_the_document_has_the_keys_that_others_rely_on(finished: tuple[Any, dict[str, Any]]):
    document = finished[1]
    assert set(document) >= SEARCH_KEYS
    assert set(document["baseline"]) == RESULT_KEYS
    assert set(document["best"]) == RESULT_KEYS | {"profile_id"}
    assert set(document["speedup"]) == {"ratio", "low", "high", "confidence", "pairs"}
    assert set(document["trials"]) == {"complete", "pruned", "infeasible", "failed"}
    assert document["status"] in {"confirmed", "provisional", "no_gain", "infeasible"}
    for result in (document["baseline"], document["best"], *document["runners_up"]):
        assert {"response_ms.p50", "ttft_ms.p50", "itl_ms.p50", "decode_tps.p50"} <= set(
            result["metrics"]
        ) or result in document["runners_up"]
    for name in ("kl_divergence", "top1_agreement", "perplexity_ratio", "peak_rss_mib", "load_ms"):
        assert isinstance(document["best"]["metrics"][name], float), name
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_answer_is_a_gain_over_the_default_that_keeps_the_quality(
    finished: tuple[Any, dict[str, Any]],
):
    document = finished[1]
    speedup = document["speedup"]
    assert document["status"] == "provisional"
    assert 1.0 < speedup["low"] <= speedup["ratio"] <= speedup["high"]
    best = document["best"]
    assert best["metrics"]["kl_divergence"] <= QUALITY_LEVELS["near-lossless"].max_kl_divergence
    assert best["metrics"]["response_ms.p50"] < document["baseline"]["metrics"]["response_ms.p50"]


def test_the_profile_and_the_study_say_the_same_as_the_document(flow_after: Flow, finished):
    document = finished[1]
    with flow_after.store() as store:
        profile = store.profile(document["best"]["profile_id"])
        study = store.study(document["study"])
    assert profile.status is ProfileStatus.PROVISIONAL
    assert study.status is StudyStatus.PROVISIONAL
    assert profile.config.as_dict() == document["best"]["config"]
    assert profile.study_id == study.id
    assert study.result["best"]["profile_id"] == profile.id
    assert all(t.status is not TrialStatus.RUNNING for t in flow_after.trials())


def test_a_second_search_measures_nothing(flow_after: Flow, finished, workers: list[int]):
    before = flow_after.trials()
    second = flow_after.search(trials=None, bounded=False)
    assert workers == []
    assert flow_after.trials() == before
    assert second["measured_now"] is False
    assert {**second, "measured_now": True} == finished[1]


def test_fresh_starts_a_study_of_its_own(flow_after: Flow, finished, quick_quality):
    anew = flow_after.search(trials=1, fresh=True, bounded=False)
    assert anew["study"] != finished[1]["study"]
    assert anew["measured_now"] is True
    assert sum(anew["trials"].values()) == 1


def test_another_quality_level_is_a_view_over_the_same_samples(
    flow_after: Flow, finished: tuple[Any, dict[str, Any]], quick_quality
):
    """And a search with a budget goes on where the last one ended: S05, nothing is tried again."""
    before = flow_after.trials()
    document = flow_after.search(trials=2, quality=QUALITY_LEVELS["balanced"])
    after = flow_after.trials()
    assert document["study"] == finished[1]["study"]
    assert (document["quality"], document["measured_now"]) == ("balanced", True)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert len({trial.config.key for trial in after}) == len(after)
    first = flow_after.search(trials=None, bounded=False)
    assert (first["quality"], first["measured_now"]) == ("near-lossless", False)


def test_s11_nothing_is_published_without_confirmation(flow: Flow, quick_quality, workers):
    """Each confirmation pair takes two processes of its own, beyond those of the search."""
    flow.search(trials=3)
    with flow.store() as store:
        comparison = store.comparisons(flow.study().id)[0]
        pairs = store.pairs(comparison.id)
    assert len(pairs) == 5
    assert len(workers) >= 2 * len(pairs) + 1


def test_a_search_confirms_when_the_time_suffices(flow: Flow, quick_quality):
    document = flow.search(trials=3, pairs=99)
    assert document["status"] == "confirmed"
    assert document["speedup"]["confidence"] > 0.99


def test_the_default_is_published_where_nothing_is_faster(flow: Flow, quick_quality):
    document = flow.search(trials=1, variants=("source",))
    assert document["status"] == "no_gain"
    assert document["best"]["config"] == document["baseline"]["config"]
    assert document["best"]["profile_id"].startswith("p-")
    assert flow.search(trials=None, variants=("source",), bounded=False)["measured_now"] is False


def test_a_variant_that_ruins_the_answers_is_never_published(flow: Flow, monkeypatch):
    """All made variants are faster than the default, and all of them lie."""
    monkeypatch.setattr(Workshop, "quality", lambda _shop, _key: RUINED)
    document = flow.search(trials=6)
    assert document["best"]["variant"] == "source"
    assert all(runner_up["variant"] == "source" for runner_up in document["runners_up"])


def test_s07_a_quality_that_is_no_number_keeps_no_level(flow: Flow, monkeypatch):
    nothing = float("nan")
    monkeypatch.setattr(Workshop, "quality", lambda _shop, _key: Quality(*[nothing] * 5, positions=100))
    document = flow.search(trials=4)
    assert document["best"]["variant"] == "source"
    assert "kl_divergence" not in document["best"]["metrics"]
    assert json.dumps(document, allow_nan=False)


def test_s12_no_prompt_is_measured_twice(flow: Flow, quick_quality, monkeypatch):
    seen: dict[int, list[tuple[int, ...]]] = {}
    request = Worker.request

    def listening(worker: Worker, op: str, payload: Any, *arguments: Any, **options: Any) -> Any:
        if op == "round" and not payload["reuse_prefix"]:
            seen.setdefault(worker.pid, []).extend(tuple(prompt) for prompt in payload["prompts"])
        return request(worker, op, payload, *arguments, **options)

    monkeypatch.setattr(Worker, "request", listening)
    flow.search(trials=3)
    assert sum(map(len, seen.values())) > 10
    for prompts in seen.values():
        assert len(set(prompts)) == len(prompts)
        # Not even a beginning is shared: a prefix cache has nothing to offer.
        assert len({prompt[:8] for prompt in prompts}) == len(prompts)


def test_s16_one_thread_is_in_the_space_and_is_tried(flow: Flow, quick_quality):
    flow.search(trials=6, variants=("source", "bf16"))
    assert 1 in {trial.config.get("n_threads") for trial in flow.trials()}


def test_s01_a_finite_space_is_exhausted_once(flow: Flow, quick_quality, monkeypatch):
    """Two variants on every number of decoding threads, all else as the default has it."""
    safe = setup.safe_dimensions

    def few(*arguments: Any) -> tuple[Dimension, ...]:
        return tuple(
            d if d.name == "n_threads" else replace(d, values=(d.default,)) for d in safe(*arguments)
        )

    monkeypatch.setattr(setup, "safe_dimensions", few)
    document = flow.search(trials=50, variants=("source", "bf16"))
    tried = [trial.config for trial in flow.trials()]
    counts = {config.get("n_threads") for config in tried}
    assert len(tried) == len(set(tried)) == 2 * len(counts)
    assert document["status"] == "provisional"
    assert "every configuration has been tried" in flow.notes
    assert document["ended"] == "every configuration has been tried"


def test_a_search_beside_a_neighbour_ends_and_says_that_it_was_loaded(
    flow: Flow, quick_quality, set_faults: Callable[..., None]
):
    set_faults({"*": "neighbour"})
    document = flow.search(trials=16)
    assert document["conditions"] == "loaded"
    assert document["dropped_rounds"] > 0
    assert "under load" in flow.notes
    with flow.store() as store:
        assert store.profile(document["best"]["profile_id"]).conditions == "loaded"


def test_a_workload_longer_than_the_models_context_is_refused(flow: Flow):
    with pytest.raises(UsageError, match="needs 9000 tokens of context: the model has 8192"):
        flow.search(workload=Workload("novel", 8000, 1000))


def test_several_streams_are_searched_by_their_rate(flow: Flow, quick_quality):
    document = flow.search(workload=Workload("few", 32, 32, streams=2, objective="decode_tps"), trials=4)
    assert document["objective"] == "decode_tps"
    if document["status"] != "no_gain":
        assert document["speedup"]["low"] >= 1.0
        assert (
            document["best"]["metrics"]["decode_tps.p50"] > document["baseline"]["metrics"]["decode_tps.p50"]
        )
