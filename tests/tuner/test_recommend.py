"""Advice without measuring: the basis in its order, every difference told, nothing that can't be trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probes.machine import Machine
from profiles.errors import NotFoundError
from profiles.records import Profile, ProfileStatus, StudySpec
from profiles.store import Store, owner_token
from profiles.vocabulary import (
    QUALITY_LEVELS,
    WORKLOADS,
    Config,
    Interval,
    Limit,
    ModelInfo,
    Objective,
    Quality,
    TrialStatus,
)
from tests.profiles.store_examples import SPEC
from tuner.engines.base import SOURCE
from tuner.engines.llama_cpp.describe import LlamaCpp
from tuner.errors import EngineUnavailableError, NothingFeasibleError, UsageError
from tuner.recommend import Question, Recommendation, recommend

MODEL = ModelInfo(
    name="m", digest="ab" * 32, format="gguf", architecture="llama", parameter_count=135_000_000,
    layer_count=30, hidden_size=576, head_count=9, kv_head_count=3, key_length=64, value_length=64,
    vocabulary_size=49152, context_length=8192, file_bytes=98_000_000, tensor_mix=(("q4_1", 96_000_000),),
    bits_per_weight=5.7,
)  # fmt: skip
DOCUMENT: dict[str, Any] = {
    "schema_version": 1, "fingerprint": "here", "arch": "x86_64", "vendor": "V", "model_name": "CPU A",
    "kernel": "6.1", "physical_cores": 4, "logical_cpus": 8, "online_cpus": list(range(8)),
    "cores": [[core, core + 4] for core in range(4)], "features": ["avx2", "f16c"],
    "memory": {"total_bytes": 16 << 30},
    "effective": {"cpus": list(range(8)), "cpu_count": 8, "limited_by": "none", "memory_bytes": 8 << 30},
}  # fmt: skip
HERE = Machine.from_json(DOCUMENT)
CHAT = WORKLOADS["chat"]
FOUND = Config.of(
    "llama_cpp",
    "q8_0",
    {
        "n_threads": 4, "n_threads_batch": 4, "n_ubatch": 128, "flash_attn": "on", "type_k": "f16",
        "type_v": "f16", "repack": True, "mmap": True, "mlock": False, "wait_policy": "passive",
        "placement": "cores",
    },
)  # fmt: skip
PROFILE = Profile(
    fingerprint="here",
    model_digest=MODEL.digest,
    workload=CHAT,
    objectives=(Objective("response_ms"),),
    quality_level="near-lossless",
    status=ProfileStatus.CONFIRMED,
    conditions="quiet",
    config=FOUND,
    variant_digest="cd" * 32,
    bits_per_weight=8.5,
    metrics={"response_ms.p50": 800.0, "peak_rss_mib": 300.0},
    baseline_config=Config.of("llama_cpp", SOURCE, {}),
    baseline_metrics={"response_ms.p50": 1200.0},
    speedup=Interval(1.5, 1.4, 1.6, 0.99),
    quality=Quality(0.004, 0.006, 0.98, 0.975, 1.002, 1024),
    engine_build="1",
    kernel="6.1",
)


def machine(name: str, **changes: Any) -> Machine:
    return Machine.from_json({**DOCUMENT, "fingerprint": name, **changes})


def smaller(name: str, cpus: int = 2, **changes: Any) -> Machine:
    """A machine with so many cores of one CPU each."""
    own = list(range(cpus))
    effective = {"cpus": own, "cpu_count": cpus, "limited_by": "none", "memory_bytes": 8 << 30}
    cores = {"physical_cores": cpus, "logical_cpus": cpus, "online_cpus": own, "cores": [[c] for c in own]}
    return machine(name, **{**cores, "effective": effective, **changes})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store.sqlite3") as opened:
        opened.save_model(MODEL, "m.gguf", "m")
        opened.save_machine(HERE, "host")
        yield opened


def ask(store: Store, machine: Machine = HERE, **changes: Any) -> Recommendation:
    given = recommend(store, machine, Question(**{"model": "m", "workload": CHAT, **changes}))
    json.dumps(given.to_json(), allow_nan=False)
    return given


def says(given: Recommendation, *parts: str) -> bool:
    text = "\n".join((*given.reasons, *given.changes))
    return all(part in text for part in parts)


def test_exact(store: Store) -> None:
    published = store.publish(PROFILE)
    given = ask(store)
    assert (given.basis, given.distance, given.confidence, given.changes) == ("exact", 0.0, "high", ())
    assert given.config == FOUND
    assert given.profile == published
    document = given.to_json()
    assert document["profile"]["id"] == published.id
    assert document["profile"]["measured"]["speedup"]["estimate"] == 1.5


@pytest.mark.parametrize("changes", [{"conditions": "loaded"}, {"status": ProfileStatus.PROVISIONAL}])
def test_exact_with_less_behind_it(changes: dict[str, Any], store: Store) -> None:
    store.publish(replace(PROFILE, **changes))
    given = ask(store)
    assert (given.basis, given.confidence) == ("exact", "medium")
    assert says(given, "under load" if "conditions" in changes else "provisional")


def test_another_kernel_is_told(store: Store) -> None:
    store.publish(PROFILE)
    assert says(ask(store, machine("here", kernel="6.9")), "under kernel 6.1, this machine runs 6.9 now")


def test_same_machine_other_workload(store: Store) -> None:
    store.publish(
        replace(PROFILE, workload=WORKLOADS["batch"], objectives=(Objective("decode_tps", "maximize"),))
    )
    store.publish(PROFILE)
    given = ask(store, workload=WORKLOADS["rag"])
    assert (given.basis, given.confidence) == ("same_machine", "medium")
    assert given.distance == pytest.approx(1.0)
    assert says(given, "measured for chat (128+128), not for rag (1024+64)", "prompt: 128 tokens there, 1024")
    assert given.config.get("n_threads") == 4


def test_same_machine_at_a_stricter_level(store: Store) -> None:
    store.publish(PROFILE)
    given = ask(store, quality=QUALITY_LEVELS["balanced"])
    assert given.basis == "same_machine"
    assert says(given, "found at near-lossless, a stricter level than balanced")


def test_a_laxer_level_counts_only_where_its_quality_was_measured(store: Store) -> None:
    store.publish(replace(PROFILE, quality_level="any", quality=None))
    given = ask(store)
    assert given.basis == "default"
    assert says(given, "found at any: not shown to keep near-lossless")
    store.publish(replace(PROFILE, quality_level="any"))
    given = ask(store)
    assert given.basis == "same_machine"
    assert says(given, "found at any, a laxer level, but its measured quality keeps near-lossless")


def test_similar_machine_with_every_setting_by_its_role(store: Store) -> None:
    store.publish(PROFILE)
    given = ask(store, smaller("there", model_name="CPU B"))
    assert (given.basis, given.confidence) == ("similar", "low")
    assert says(given, "measured on another machine, CPU A (here)", "CPU CPU A there, CPU B here")
    assert says(given, "n_threads 4 -> 2", "n_threads_batch 4 -> 2", "placement cores is dropped")
    settings = given.config.as_dict()
    assert (settings["n_threads"], settings["flash_attn"], settings["wait_policy"]) == (2, "on", "passive")
    assert "placement" not in settings


def test_a_default_is_each_machine_s_own(store: Store) -> None:
    default = Config.of("llama_cpp", SOURCE, {**FOUND.as_dict(), "n_threads": 4, "n_ubatch": 16})
    store.publish(replace(PROFILE, status=ProfileStatus.NO_GAIN, config=default, baseline_config=default))
    there = smaller("there", 2)
    store.save_machine(there, "there")
    given = ask(store, there)
    own = LlamaCpp().canonical(LlamaCpp().default(there, MODEL, CHAT), MODEL, CHAT)
    assert (given.basis, given.changes) == ("similar", ())
    for name in ("n_threads", "n_threads_batch", "n_ubatch"):
        assert given.config.get(name) == own.get(name) != default.get(name)
    assert says(given, "a default is not brought over")


def test_a_command_that_was_to_be_kept_is_brought_over(store: Store) -> None:
    facts = {"document": {"from": {"command": "llama-server"}}}
    store.publish(replace(PROFILE, status=ProfileStatus.NO_GAIN, facts=facts))
    given = ask(store, smaller("there", 2))
    assert given.config.get("wait_policy") == FOUND.get("wait_policy")
    assert not says(given, "a default is not brought over")


def test_this_machine_wins_over_a_nearer_question_elsewhere(store: Store) -> None:
    store.save_machine(machine("twin", kernel="5"), "twin")
    store.publish(replace(PROFILE, fingerprint="twin"))
    store.publish(replace(PROFILE, workload=WORKLOADS["writer"]))
    assert ask(store).basis == "same_machine"
    assert ask(store, workload=WORKLOADS["writer"]).basis == "exact"


def test_the_nearest_of_several_machines(store: Store) -> None:
    for name, cpus in (("two", 2), ("six", 6)):
        store.save_machine(smaller(name, cpus), name)
        store.publish(replace(PROFILE, fingerprint=name, config=FOUND.without(["placement"])))
    given = ask(store, smaller("five", 5))
    assert given.profile is not None
    assert given.profile.fingerprint == "six"


def test_a_machine_that_is_too_far_is_named_and_left_out(store: Store) -> None:
    store.publish(PROFILE)
    given = ask(store, smaller("arm", arch="aarch64", features=["asimd"]))
    assert (given.basis, given.profile) == ("default", None)
    assert says(given, "from machines farther than 5; the nearest is p-", "of CPU A")


def test_default_is_within_the_cpus_and_says_that_nothing_was_measured(store: Store) -> None:
    quota = {**DOCUMENT["effective"], "cpu_count": 3, "cpu_quota": 3.0, "limited_by": "quota"}
    given = ask(store, machine("limited", effective=quota))
    assert (given.basis, given.confidence, given.config.variant) == ("default", "low", SOURCE)
    assert says(given, "llama_cpp's own defaults", "for 3 CPUs; nothing was measured")
    assert (given.config.get("n_threads"), given.config.get("n_threads_batch")) == (3, 3)
    assert given.to_json()["profile"]["measured"] is None


def test_memory_decides_what_can_be_used(store: Store) -> None:
    store.publish(PROFILE)
    room = {**DOCUMENT["effective"], "memory_bytes": 120 << 20}
    given = ask(store, machine("small", effective=room, model_name="CPU A"))
    assert given.basis == "default"
    assert says(given, "because q8_0 needs 0.14 GiB, 0.12 GiB of memory are free there")
    with pytest.raises(NothingFeasibleError, match=r"m can't run there: .* of memory are free"):
        ask(store, machine("tiny", effective={**room, "memory_bytes": 1 << 20}))


def test_a_smaller_variant_where_the_file_does_not_fit(store: Store) -> None:
    big = replace(
        MODEL, digest="ef" * 32, name="big", tensor_mix=(("f16", 260_000_000),), file_bytes=270_000_000
    )
    store.save_model(big, "big.gguf", "big")
    given = ask(
        store, machine("small", effective={**DOCUMENT["effective"], "memory_bytes": 180 << 20}), model="big"
    )
    assert given.config.variant == "q8_0"
    assert says(given, "source needs 0.2", "the quality of q8_0 was not measured")


def test_s11_what_was_declared_wrong_is_not_recommended(store: Store) -> None:
    spec = StudySpec(**{**SPEC.__dict__, "fingerprint": "here", "model_digest": MODEL.digest})
    study = store.open_study(spec, owner_token())
    trial = store.start_trial(study.id, FOUND, owner_token())
    store.finish_trial(trial.id, TrialStatus.COMPLETE, objective_value=800.0)
    wrong = store.publish(replace(PROFILE, study_id=study.id, trial_ids=(trial.id,)))
    assert ask(store).basis == "exact"
    store.invalidate_trial(trial.id, "the fan stood still")
    given = ask(store)
    assert given.basis == "default"
    assert says(given, f"left out: {wrong.id}, because it rests on trial {trial.id}, declared wrong: the fan")


def test_limits(store: Store) -> None:
    store.publish(PROFILE)
    kept, broken, unknown = (
        ask(store, limits=(limit,)) for limit in (
            Limit("peak_rss_mib", "<=", 400), Limit("peak_rss_mib", "<=", 200), Limit("load_ms", "<=", 1),
        )
    )  # fmt: skip
    assert (kept.basis, broken.basis, unknown.basis) == ("same_machine", "default", "same_machine")
    assert says(broken, "measured to break peak_rss_mib<=200")
    assert says(unknown, "not measured against the limits load_ms<=1")
    store.publish(replace(PROFILE, workload=WORKLOADS["rag"], limits=(Limit("peak_rss_mib", "<=", 350),)))
    assert says(ask(store, workload=WORKLOADS["rag"]), "limits that were not asked: peak_rss_mib<=350")


def test_an_engine_that_is_not_asked_for_is_not_recommended(store: Store) -> None:
    store.publish(replace(PROFILE, config=replace(FOUND, engine="simulated")))
    assert ask(store).basis == "default"
    assert ask(store, engines=("simulated",)).basis == "exact"
    with pytest.raises(UsageError, match="unknown engine 'lama'"):
        ask(store, engines=("lama",))


def test_a_variant_that_the_engine_no_longer_makes(store: Store) -> None:
    store.publish(replace(PROFILE, config=replace(FOUND, variant="q3_x")))
    assert says(ask(store), "llama_cpp makes no variant q3_x of this model")


def test_what_is_not_known(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no model 'n'"):
        ask(store, model="n")
    store.save_model(replace(MODEL, digest="01" * 32, format="safetensors", name="st"), "st", "st")
    with pytest.raises(EngineUnavailableError, match="no engine reads safetensors files"):
        ask(store, model="st", engines=("llama_cpp",))


def test_a_damaged_machine_in_the_store_is_passed_over(store: Store) -> None:
    store.save_machine(machine("old"), "old")
    store.publish(replace(PROFILE, fingerprint="old"))
    document = {**DOCUMENT, "fingerprint": "old", "schema_version": 99}
    with store._database.writing() as session:
        from profiles.tables import MachineRow

        row = session.get(MachineRow, "old")
        assert row is not None
        row.document = document
        session.add(row)
    assert ask(store, smaller("new")).basis == "default"
