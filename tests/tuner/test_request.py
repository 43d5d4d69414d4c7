"""What a user may ask for, and what is refused with the value, what is allowed, and the nearest name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probes.effective import Effective
from probes.machine import Machine
from probes.topology import Topology
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, Limit, Objective, Workload
from tests.support.surface import MODEL
from tuner.engines.llama_cpp.describe import LlamaCpp
from tuner.engines.simulated.describe import Simulated
from tuner.engines.transformers.describe import Transformers
from tuner.errors import NothingFeasibleError, UsageError
from tuner.measurement import placement
from tuner.narrowing import check_variants, kv_cache_bytes, searched_dimensions, searched_variants
from tuner.request import (
    SearchRequest,
    load_text,
    objective_metric,
    objective_metrics,
    parse_limit,
    parse_limits,
    parse_load,
    with_lengths,
    with_objective,
)
from tuner.search.narrow import restrict
from tuner.search.space import EngineSpace, Space
from tuner.userfiles import side_given, space_given, workload_given

CHAT = WORKLOADS["chat"]


def refused(call: Any, *parts: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


# --- load ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("quiet", 0.0),
        ("background", 0.5),
        ("background:0.3", 0.3),
        ("background:.25", 0.25),
        ("background:1", 1.0),
    ],
)
def test_a_load_is_understood_and_written_back(text, share):
    assert parse_load(text) == share
    assert parse_load(load_text(share)) == share


@pytest.mark.parametrize(
    "text", ["busy", "background:", "background:0", "background:2", "background:nan", "quiet:0.5", ""]
)
def test_e14_another_load_is_refused(text):
    refused(lambda: parse_load(text), f"'{text}'", "quiet", "background:SHARE")


def test_load_weighs_one_objective_only():
    refused(
        lambda: SearchRequest(
            None, CHAT, QUALITY_LEVELS["any"], second_objective="peak_rss_mib", busy_share=0.5
        ),
        "--load background",
        "--limit",
    )


def test_a_misspelt_load_gets_the_nearest_name():
    refused(lambda: parse_load("backgroud"), "did you mean background?")


# --- metrics, lengths ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("ttft_ms<=100", Limit("ttft_ms", "<=", 100.0)),
        (" decode_tps >= 1e2 ", Limit("decode_tps", ">=", 100.0)),
        ("itl_ms.p95<=20.5", Limit("itl_ms.p95", "<=", 20.5)),
        ("response_ms.p50<=9", Limit("response_ms", "<=", 9.0)),
        ("kl_divergence<=0", Limit("kl_divergence", "<=", 0.0)),
    ],
)
def test_a_limit_is_understood(text, limit):
    assert parse_limit(text) == limit


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ttft_ms", ("METRIC<=VALUE",)),
        ("ttft_ms=3", ("METRIC<=VALUE",)),
        ("peak_rss_mb<=3", ("peak_rss_mb", "did you mean peak_rss_mib?")),
        ("zzz<=3", ("zzz", "allowed are ttft_ms")),
        ("peak_rss_mib.p95<=3", ("peak_rss_mib.p95",)),
        ("ttft_ms.max_of_n<=3", (".p95",)),
        ("ttft_ms<=nan", ("nan", "not a number")),
        ("ttft_ms<=inf", ("inf", "not a number")),
        ("ttft_ms<=ten", ("ten", "not a number")),
        ("peak_rss_mib<=-4", ("peak_rss_mib<=-4", "nothing keeps it")),
    ],
)
def test_a_limit_that_is_not_understood_says_why(text, parts):
    refused(lambda: parse_limit(text), *parts)


def test_a_limit_given_twice_counts_once():
    assert parse_limits(["ttft_ms<=100", "ttft_ms.p50 <= 100.0"]) == (Limit("ttft_ms", "<=", 100.0),)


def test_two_objectives_are_two_metrics_that_differ():
    assert objective_metrics("ttft_ms") == ("ttft_ms", None)
    assert objective_metrics("response_ms, peak_rss_mib") == ("response_ms", "peak_rss_mib")
    assert objective_metrics("response_ms,itl_ms.p95") == ("response_ms", "itl_ms.p95")
    refused(lambda: objective_metrics("ttft_ms,itl_ms,load_ms"), "one metric or two", "--limit")
    refused(lambda: objective_metrics("ttft_ms,"), "one metric or two")
    refused(lambda: objective_metrics("ttft_ms,ttft_ms.p50"), "ttft_ms twice")
    refused(lambda: objective_metrics("ttft_ms,peak_rss"), "peak_rss", "did you mean peak_rss_mib?")
    refused(lambda: objective_metrics("peak_rss_mib,ttft_ms"), "peak_rss_mib", "second of two")
    refused(lambda: objective_metrics("response_ms,ttft_ms.p95"), "ttft_ms.p95", "itl_ms.p95")


def test_a_request_with_two_objectives_asks_again_for_both():
    request = SearchRequest(None, CHAT, QUALITY_LEVELS["any"], second_objective="peak_rss_mib")
    assert request.objectives == (Objective("response_ms"), Objective("peak_rss_mib"))
    assert request.options()[:2] == ["--objective", "response_ms,peak_rss_mib"]
    assert request.to_json()["objective"] == "response_ms,peak_rss_mib"


def test_one_objective_at_a_time():
    assert objective_metric("itl_ms.p50") == "itl_ms"
    assert with_objective(CHAT, "ttft_ms") == replace(CHAT, objective="ttft_ms")
    refused(lambda: objective_metric("ttft_ms,itl_ms"), "ttft_ms,itl_ms", "one is allowed", "--limit")
    refused(lambda: objective_metric("ttft_m"), "did you mean ttft_ms?")
    refused(lambda: objective_metric("ttft_ms.p95"), "ttft_ms.p95", "allowed are response_ms")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt_tokens", 0),
        ("prompt_tokens", -5),
        ("output_tokens", 1),
        ("output_tokens", 0),
        ("streams", 0),
        ("streams", 257),
    ],
)
def test_e14_degenerate_lengths_are_refused(name, value):
    refused(lambda: with_lengths(CHAT, **{name: value}), f"--{name.replace('_', '-')}={value}", "allowed is")


def test_other_lengths_make_another_workload():
    assert with_lengths(CHAT) is CHAT
    assert with_lengths(CHAT, prompt_tokens=128) is CHAT
    assert with_lengths(CHAT, prompt_tokens=64, streams=4) == Workload("64+128x4", 64, 128, 4)


# --- files --------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_a_workload_file(written):
    path = written("prompt_tokens: 64\noutput_tokens: 32\nstreams: 2\nobjective: decode_tps\n")
    assert workload_given(path) == Workload("mine", 64, 32, 2, "decode_tps")
    assert workload_given(written('{"prompt_tokens": 64, "output_tokens": 32}')).streams == 1


def test_a_workload_file_does_not_take_the_name_of_a_built_in_one(written):
    assert workload_given(written("name: chat\nprompt_tokens: 64\noutput_tokens: 32\n")).name == "64+32"
    assert workload_given(written("name: chat\nprompt_tokens: 128\noutput_tokens: 128\n")) == CHAT


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("prompt_tokens: 64", ("output_tokens is missing",)),
        ("prompt_tokens: 0\noutput_tokens: 8", ("prompt_tokens=0", "from 1 to")),
        ("prompt_tokens: 8.5\noutput_tokens: 8", ("prompt_tokens=8.5",)),
        ("prompt_tokens: true\noutput_tokens: 8", ("prompt_tokens=True",)),
        ("prompt_tokens: 8\noutput_tokens: 8\nobjective: [a]", ("objective=",)),
        ("prompt: 8", ("unknown key 'prompt'", "did you mean prompt_tokens?")),
        ("- 8", ("holds no workload",)),
        ("a: [", ("neither JSON nor YAML",)),
        ("", ("holds no workload",)),
    ],
)
def test_a_wrong_workload_file_names_key_and_range(written, text, parts):
    refused(lambda: workload_given(written(text)), "mine.yaml", *parts)


def test_a_missing_file_and_an_unknown_name():
    refused(lambda: workload_given("nowhere/w.yaml"), "nowhere/w.yaml", "No such file")
    refused(lambda: workload_given("chatt"), "did you mean chat?")


def test_a_space_file_takes_values_and_lists(written):
    assert space_given(written("n_threads: [1, 2]\nflash_attn: on\n")) == {
        "n_threads": (1, 2),
        "flash_attn": (True,),
    }
    refused(lambda: space_given(written("n_threads: {a: 1}")), "n_threads=")
    refused(lambda: space_given(written("n_threads: []")), "n_threads=[]")


def test_a_short_configuration_names_its_keys(written):
    side = side_given(written("variant: q8_0\nsettings: {n_threads: 2}\n"))
    assert (side.engine, side.variant, dict(side.settings)) == (None, "q8_0", {"n_threads": 2})
    refused(lambda: side_given(written("varient: q8_0")), "unknown key 'varient'", "did you mean variant?")
    refused(lambda: side_given(written("engine: 3")), "engine=3")
    refused(lambda: side_given(written("settings: {n_threads: [1]}")), "settings.n_threads=[1]")
    refused(lambda: side_given(written("kind: profile\nschema_version: 1\n")), "mine.yaml", "machine")


# --- the space ----------------------------------------------------------------------------------

LLAMA_MODEL = replace(MODEL, format="gguf", head_count=8, kv_head_count=4, layer_count=10)


BIG = replace(LLAMA_MODEL, parameter_count=8 << 30, file_bytes=5 << 30, tensor_mix=(("q4_1", 5 << 30),))


def shop_of(model=LLAMA_MODEL, workload=CHAT, cpus=2, memory_bytes=None) -> Any:
    """As much of a workshop as narrowing asks for."""
    effective = Effective(cpus=tuple(range(cpus)), cpu_count=cpus, memory_bytes=memory_bytes)
    machine = Machine(fingerprint="f0", topology=Topology(logical_cpus=cpus), effective=effective)
    notes: list[str] = []
    return SimpleNamespace(
        machine=machine,
        model=model,
        workload=workload,
        observer=lambda event: notes.append(event.message),
        notes=notes,
        lacking=lambda _engine, _recipe: None,
    )


def request(**changes: Any) -> SearchRequest:
    return SearchRequest(None, CHAT, QUALITY_LEVELS["any"], **changes)


def narrow(engine=None, shop=None, **changes: Any) -> dict[str, tuple[Any, ...]]:
    engine, shop = engine or LlamaCpp(), shop or shop_of()
    every = (
        *engine.dimensions(shop.machine, shop.model, shop.workload),
        *placement.dimensions(engine, shop.machine),
    )
    return {d.name: d.values for d in searched_dimensions(request(**changes), shop, engine, every)}


@pytest.mark.parametrize("engine", [LlamaCpp(), Simulated()], ids=["llama_cpp", "simulated"])
def test_p18_more_threads_than_cpus_are_refused(engine):
    refused(lambda: narrow(engine, space={"n_threads": (1, 3)}), "n_threads=3", "1 to 2")
    # On 8 CPUs of which 2 are left, the default's own 8 are no reason to let a user's 8 pass.
    shop = shop_of(cpus=2)
    shop.machine = replace(shop.machine, topology=Topology(logical_cpus=8))
    refused(lambda: narrow(engine, shop, space={"n_threads_batch": (8,)}), "n_threads_batch=8", "1 to 2")


def test_leave_cores_counts_from_the_effective_cpus():
    assert narrow(shop=shop_of(cpus=4), leave_cores=1)["n_threads"] == (1, 2, 3)
    refused(lambda: narrow(leave_cores=2), "--leave-cores 2", "0 to 1")
    refused(lambda: narrow(leave_cores=-1), "--leave-cores -1")
    refused(lambda: narrow(leave_cores=1, space={"n_threads": (2,)}), "n_threads=2", "1 to 1")


def test_e09_a_quantized_v_cache_needs_flash_attention():
    assert narrow(space={"type_v": ("q8_0",)})["type_v"] == ("q8_0",)
    refused(lambda: narrow(space={"type_v": ("q8_0",), "flash_attn": (False,)}), "type_v=q8_0", "flash_attn")
    assert narrow(space={"type_k": ("q8_0",), "flash_attn": (False,)})["flash_attn"] == ("off",)


def test_e10_a_head_that_is_no_multiple_of_the_block_stays_f16():
    shop = shop_of(replace(LLAMA_MODEL, key_length=80, value_length=80))
    assert narrow(shop=shop)["type_k"] == ("f16",)
    refused(lambda: narrow(shop=shop, space={"type_k": ("q8_0",)}), "type_k=q8_0", "80", "32")


@pytest.mark.parametrize("value", [0, -1, 100_000, "many", True])
def test_e14_a_batch_that_can_not_run_is_refused(value):
    refused(lambda: narrow(space={"n_ubatch": (64, value)}), f"n_ubatch={value}", "allowed is 1 to")


def test_a_host_wide_setting_has_the_described_values_only():
    refused(lambda: narrow(space={"wait_policy": ("lazy",)}), "wait_policy=lazy", "passive")
    assert narrow(space={"wait_policy": ("passive",)})["wait_policy"] == ("passive",)


def test_a_space_extends_a_dimension_and_leaves_the_others():
    before, after = narrow(), narrow(space={"n_ubatch": (48, 64)})
    assert after["n_ubatch"] == (48, 64)
    assert {**after, "n_ubatch": before["n_ubatch"]} == before


def test_answers_unchanged_keeps_to_the_file_and_an_exact_cache():
    shop = shop_of()
    found = narrow(shop=shop, answers_unchanged=True)
    assert (found["type_k"], found["type_v"]) == (("f16",), ("f16",))
    assert len(found["n_threads"]) == 2
    assert searched_variants(request(answers_unchanged=True), shop, LlamaCpp()) == ("source",)
    refused(
        lambda: check_variants(request(answers_unchanged=True, variants=("q8_0",)), shop, [LlamaCpp()]),
        "--variants",
    )


def test_an_unknown_variant_is_refused_with_the_nearest():
    refused(lambda: check_variants(request(variants=("q8",)), shop_of(), [LlamaCpp()]), "did you mean q8_0?")


def test_a_variant_of_one_engine_leaves_none_of_another():
    shop, asked = shop_of(), request(variants=("int8",))
    check_variants(asked, shop, [LlamaCpp(), Transformers()])
    assert searched_variants(asked, shop, LlamaCpp()) == ()
    assert searched_variants(asked, shop, Transformers()) == ("int8",)


def test_a_variant_whose_maker_lacks_a_package_is_left_out_with_a_note():
    shop = shop_of()
    shop.lacking = lambda _engine, recipe: "no onnx" if recipe.label == "bf16" else None
    assert "bf16" not in searched_variants(request(), shop, Transformers())
    assert shop.notes == ["left out: no onnx"]


def test_the_kv_cache_counts_both_halves_of_every_layer_and_stream():
    assert kv_cache_bytes(LLAMA_MODEL, CHAT) == 256 * 10 * 4 * 128 * 2
    assert kv_cache_bytes(LLAMA_MODEL, WORKLOADS["batch"]) == 8 * 256 * 10 * 4 * 128 * 2
    windowed = replace(LLAMA_MODEL, sliding_window=64)
    assert kv_cache_bytes(windowed, CHAT) == 64 * 10 * 4 * 128 * 2


def test_p16_variants_that_can_not_fit_are_left_out_with_the_numbers():
    shop = shop_of(BIG, memory_bytes=9 << 30)
    kept = searched_variants(request(), shop, LlamaCpp())
    assert "source" in kept
    assert "q4_0" in kept
    assert "f16" not in kept
    (note,) = [note for note in shop.notes if note.startswith("left out: f16")]
    assert "16.0" in note
    assert "9.00 GiB of memory are free" in note


def test_p16_a_source_above_the_limit_is_never_loaded():
    with pytest.raises(NothingFeasibleError, match=r"source needs 5\.00 GiB .* 4\.00 GiB of memory are free"):
        check_variants(request(), shop_of(BIG, memory_bytes=4 << 30), [LlamaCpp()])


# --- what is searched then ----------------------------------------------------------------------


def space_of(shop: Any, **changes: Any) -> Space:
    engine = Simulated()
    every = (
        *engine.dimensions(shop.machine, shop.model, shop.workload),
        *placement.dimensions(engine, shop.machine),
    )
    chosen = searched_dimensions(request(**changes), shop, engine, every)
    part = EngineSpace(restrict(engine, every, chosen), ("source", "q8_0", "q4_0"), chosen)
    return Space(shop.machine, shop.model, shop.workload, (part,))


def test_a_narrowed_space_holds_nothing_else_and_the_baseline_stays():
    shop = shop_of(cpus=4)
    whole = space_of(shop)
    narrowed = space_of(shop, space={"n_threads": (1,), "wait_policy": ("passive",)}, leave_cores=1)
    found = narrowed.everything()
    assert {c.get("n_threads") for c in found} == {1}
    assert {c.get("n_threads_batch") for c in found} == {1, 2, 3}
    assert {c.get("wait_policy") for c in found} == {"passive"}
    assert narrowed.default("simulated") == whole.default("simulated")
    starts = [narrowed.make("simulated", "q8_0", start) for start in narrowed.starts("simulated")]
    assert set(starts) <= set(found)
    assert narrowed.digest != whole.digest


def test_canonical_forms_of_allowed_values_are_allowed():
    # An ubatch above the prompt behaves like the prompt's, and repack means nothing for q8_0.
    narrowed = space_of(shop_of(), space={"n_ubatch": (512,), "repack": (False,)})
    config = narrowed.make("simulated", "q8_0", {})
    assert config is not None
    assert narrowed.make("simulated", "q8_0", config.as_dict()) == config
    assert narrowed.make("simulated", "q4_0", {"repack": True}) is None


def test_with_several_streams_a_narrowed_space_is_not_empty():
    shop = shop_of(workload=WORKLOADS["batch"])
    found = space_of(shop, space={"n_threads": (1,), "n_threads_batch": (2,)}).everything()
    assert {c.get("n_threads") for c in found} == {2}


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (WORKLOADS["chat"], []),
        (WORKLOADS["rag"], ["--workload", "rag"]),
        (with_lengths(WORKLOADS["chat"], 64, 32), ["--prompt-tokens", "64", "--output-tokens", "32"]),
        (with_objective(WORKLOADS["long"], "ttft_ms"), ["--workload", "long", "--objective", "ttft_ms"]),
        (
            with_objective(with_lengths(WORKLOADS["chat"], 64), "ttft_ms"),
            ["--prompt-tokens", "64", "--objective", "ttft_ms"],
        ),
        (replace(WORKLOADS["chat"], name="mine"), ["--workload", "FILE"]),
    ],
)
def test_the_next_command_names_the_workload_as_it_was_given(workload: Workload, words: list[str]):
    assert SearchRequest(None, workload, QUALITY_LEVELS["near-lossless"]).options() == words
