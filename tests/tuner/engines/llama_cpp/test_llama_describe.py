"""The description: pure, so it is tested on machines and models that aren't here."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from probes.core_kinds import CoreKind
from probes.effective import Effective
from probes.machine import Machine
from probes.numa import NumaNode
from probes.topology import Topology
from profiles.vocabulary import WORKLOADS, ModelInfo, Workload
from tuner import process
from tuner.engines.base import Phase, Scope
from tuner.engines.llama_cpp import locking
from tuner.engines.llama_cpp.describe import LlamaCpp
from tuner.engines.threads import thread_counts

ENGINE = LlamaCpp()
CHAT, RAG, WRITER, BATCH = (WORKLOADS[name] for name in ("chat", "rag", "writer", "batch"))
MODEL = ModelInfo(
    name="m", digest="d", format="gguf", architecture="llama", parameter_count=134_515_008, layer_count=30,
    hidden_size=576, head_count=9, kv_head_count=3, key_length=64, value_length=64, vocabulary_size=49152,
    context_length=8192, file_bytes=98_362_432,
    tensor_mix=(("f32", 140_544), ("q4_1", 66_355_200), ("q8_0", 30_081_024)), bits_per_weight=5.74,
)  # fmt: skip


def machine(
    effective: int = 2, logical: int | None = None, cores: int | None = None, **fields: object
) -> Machine:
    usable = Effective(cpus=tuple(range(effective)), cpu_count=effective)
    topology = Topology(logical_cpus=logical or effective, physical_cores=cores or effective)
    return replace(Machine(effective=usable, topology=topology), **fields)


def values(
    name: str, model: ModelInfo = MODEL, workload: Workload = CHAT, on: Machine | None = None
) -> tuple[Any, ...]:
    dimensions = ENGINE.dimensions(on or machine(), model, workload)
    return next(dimension.values for dimension in dimensions if dimension.name == name)


def violation(model: ModelInfo = MODEL, workload: Workload = CHAT, **settings: Any) -> str | None:
    config = ENGINE.default(machine(), model, workload).with_settings(**settings)
    return ENGINE.violation(config, machine(), model, workload)


def test_e16_the_default_looks_at_all_logical_cpus() -> None:
    confined = machine(effective=1, logical=8)
    default = ENGINE.default(confined, MODEL, CHAT)
    assert (default.variant, default.get("n_threads"), default.get("n_threads_batch")) == ("source", 4, 8)
    assert (default.get("n_ubatch"), default.get("flash_attn"), default.get("repack")) == (512, "off", True)
    assert (default.get("type_k"), default.get("type_v")) == ("f16", "f16")
    assert ENGINE.violation(default, confined, MODEL, CHAT) is None
    assert ENGINE.default(machine(1), MODEL, CHAT).get("n_threads") == 1


@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        (0, "n_threads=0: allowed is 1 to 2"),
        (3, "n_threads=3: allowed is 1 to 2"),
        ("2", "n_threads=2"),
    ],
)
def test_e16_thread_counts_are_explicit(threads: object, expected: str) -> None:
    assert (violation(n_threads=threads) or "").startswith(expected)


def test_s16_small_machines_try_every_count() -> None:
    assert thread_counts(machine(1)) == (1,)
    assert thread_counts(machine(6)) == (1, 2, 3, 4, 5, 6)


def test_s16_big_machines_try_a_ladder_with_their_cores() -> None:
    counts = thread_counts(machine(64, cores=28))
    assert counts[:4] == (1, 2, 3, 4)
    assert counts[-1] == 64
    assert 28 in counts
    assert len(counts) <= 16
    hybrid = machine(
        20,
        cores=14,
        core_kinds=(
            CoreKind("performance", tuple(range(12)), 6),
            CoreKind("efficiency", tuple(range(12, 20)), 8),
        ),
    )
    assert {6, 8, 12, 14, 20} <= set(thread_counts(hybrid))
    assert max(thread_counts(machine(12, logical=64, cores=32))) == 12


@pytest.mark.parametrize(
    ("workload", "largest"),
    [(WRITER, 32), (CHAT, 128), (RAG, 512), (BATCH, 512), (replace(CHAT, prompt_tokens=130), 256)],
)
def test_ubatches_stop_at_the_prompt(workload: Workload, largest: int) -> None:
    assert max(values("n_ubatch", workload=workload)) == largest
    default = ENGINE.default(machine(), MODEL, workload)
    assert ENGINE.canonical(default, MODEL, workload).get("n_ubatch") == largest


def test_a_users_own_larger_ubatch_is_kept_as_far_as_a_prompt_fills_it() -> None:
    larger = ENGINE.default(machine(), MODEL, RAG).with_settings(n_ubatch=2048)
    assert ENGINE.violation(larger, machine(), MODEL, RAG) is None
    assert ENGINE.canonical(larger, MODEL, RAG).get("n_ubatch") == RAG.prompt_tokens
    assert ENGINE.canonical(larger, MODEL, CHAT).get("n_ubatch") == 128


@pytest.mark.parametrize("length", [80, 100, 48, 8])
def test_e10_odd_head_sizes_trim_quantized_kv(length: int) -> None:
    model = replace(MODEL, key_length=length)
    assert values("type_k", model) == ("f16",)
    assert values("type_v", model) == ("q4_0", "q8_0", "f16")
    assert violation(model, type_k="q8_0") == (
        f"type_k=q8_0: the model's head size {length} is not a multiple of 32; allowed is f16"
    )
    assert violation(model, type_k="f16") is None


@pytest.mark.parametrize("length", [64, 96, 128, 256])
def test_e10_even_head_sizes_are_allowed(length: int) -> None:
    model = replace(MODEL, key_length=length, value_length=length)
    assert violation(model, type_k="q8_0", type_v="q4_0", flash_attn="on") is None


def test_e09_a_quantized_v_cache_needs_flash_attention() -> None:
    reason = violation(type_v="q8_0", flash_attn="off") or ""
    assert "type_v=q8_0" in reason
    assert "flash_attn=off" in reason
    assert violation(type_v="q8_0", flash_attn="on") is None
    assert violation(type_k="q8_0", flash_attn="off") is None


@pytest.mark.parametrize(
    "settings",
    [
        {"n_ubatch": 0},
        {"n_ubatch": -1},
        {"n_ubatch": 10_000},
        {"flash_attn": True},
        {"type_k": "q2"},
        {"repack": 1},
    ],
)
def test_e14_degenerate_values_are_refused(settings: dict[str, Any]) -> None:
    reason = violation(**settings)
    assert reason is not None
    assert f"{next(iter(settings))}=" in reason
    assert "allowed is" in reason


def test_e14_a_workload_beyond_the_models_context_is_named() -> None:
    assert violation(replace(MODEL, context_length=200)) == (
        "prompt_tokens=128 + output_tokens=128 are 256 tokens, above the model's context of 200"
    )


def test_scopes_and_phases() -> None:
    by_name = {dimension.name: dimension for dimension in ENGINE.dimensions(machine(), MODEL, CHAT)}
    assert by_name["n_threads"].phases == {Phase.DECODE}
    assert by_name["n_threads_batch"].phases == {Phase.PREFILL}
    assert {name for name, d in by_name.items() if d.affects_quality} == {"type_k", "type_v"}
    assert {name: d.scope for name, d in by_name.items() if d.scope > Scope.RUN} == {
        "n_ubatch": Scope.CONTEXT, "flash_attn": Scope.CONTEXT, "type_k": Scope.CONTEXT,
        "type_v": Scope.CONTEXT, "repack": Scope.LOAD, "mmap": Scope.LOAD, "mlock": Scope.LOAD,
    }  # fmt: skip


def test_canonical_merges_what_behaves_alike() -> None:
    default = ENGINE.default(machine(), MODEL, CHAT)
    assert ENGINE.canonical(default, MODEL, CHAT).get("repack") is True
    assert ENGINE.canonical(default.with_settings(repack=False), MODEL, CHAT).get("repack") is False
    # Nothing of a float is repacked: the engine could not tell that it was asked.
    floats = replace(default, variant="bf16")
    assert ENGINE.canonical(floats, MODEL, CHAT).get("repack") is False
    assert ENGINE.canonical(default, MODEL, CHAT).get("n_threads") == 1
    assert ENGINE.canonical(default, MODEL, BATCH).get("n_threads") == 2


def test_recipes_leave_out_what_the_source_is() -> None:
    labels = [recipe.label for recipe in ENGINE.recipes(MODEL)]
    # Of short rows, the ends of 4-bit files are q8_0 as they are.
    assert labels == ["source", "q8_0", "q6_k", "q4_k_m", "q4_0", "bf16+q8_0", "bf16", "f16"]
    assert ENGINE.reference(MODEL).label == "f16"
    whole = replace(MODEL, tensor_mix=(("bf16", 269_000_000), ("f32", 140_544)))
    assert "bf16" not in [recipe.label for recipe in ENGINE.recipes(whole)]
    assert ENGINE.reference(whole).is_source
    mixed = replace(MODEL, tensor_mix=(("q4_k", 60), ("q6_k", 40)))
    assert "q4_k_m" not in [recipe.label for recipe in ENGINE.recipes(mixed)]
    whole = replace(MODEL, tensor_mix=(("f32", 2), ("q8_0", 98)))
    assert "q8_0" not in [recipe.label for recipe in ENGINE.recipes(whole)]
    # Gemma 3 270M in 4 bits: two thirds of its bytes are the embedding.
    embedding = replace(MODEL, tensor_mix=(("q4_k", 13), ("q5_0", 44), ("q6_k", 10), ("q8_0", 180)))
    assert "q8_0" in [recipe.label for recipe in ENGINE.recipes(embedding)]


def test_pairs_exist_where_the_ends_weigh_and_are_another_file() -> None:
    def pairs(model: ModelInfo) -> list[str]:
        return [recipe.label for recipe in ENGINE.recipes(model) if "+" in recipe.label]

    # Qwen3 0.6B: a quarter of it is the embedding, its rows take k-quants.
    qwen = replace(MODEL, parameter_count=596_049_920, hidden_size=1024, vocabulary_size=151_936)
    assert pairs(qwen) == ["q4_k_m+q8_0", "q4_0+q8_0", "bf16+q8_0"]
    parameters = {recipe.label: dict(recipe.parameters) for recipe in ENGINE.recipes(qwen)}
    assert parameters["q4_0+q8_0"] == {
        "file_type": "q4_0",
        "token_embedding_type": "q8_0",
        "output_tensor_type": "q8_0",
    }
    assert parameters["q4_0"] == {"file_type": "q4_0"}
    sizes = {recipe.label: recipe.estimated_bytes for recipe in ENGINE.recipes(qwen)}
    assert sizes["q4_0"] < sizes["q4_0+q8_0"] < sizes["q8_0"] < sizes["bf16+q8_0"] < sizes["bf16"]
    # A 7B model: its ends are 2 % of it.
    large = replace(MODEL, parameter_count=6_738_415_616, hidden_size=4096, vocabulary_size=32_000)
    assert pairs(large) == []


def test_sizes_are_estimated_within_an_eighth() -> None:
    real = {
        "f16": 270_885_952,
        "bf16+q8_0": 244_343_872,
        "q8_0": 144_811_072,
        "q6_k": 138_382_912,
        "q4_k_m": 105_454_144,
        "q4_0": 91_726_912,
    }
    estimated = {recipe.label: recipe.estimated_bytes for recipe in ENGINE.recipes(MODEL)}
    for label, size in real.items():
        assert 0.98 * size < estimated[label] < 1.13 * size, label


def test_starts_are_possible() -> None:
    big = machine(16, cores=8)
    starts = ENGINE.starts(big, MODEL, CHAT)
    assert {start["n_threads"] for start in starts} == {4, 8, 16}
    default = ENGINE.default(big, MODEL, CHAT)
    for start in starts:
        assert ENGINE.violation(default.with_settings(**start), big, MODEL, CHAT) is None


GEMMA = replace(MODEL, architecture="gemma3", sliding_window=512, key_length=256, value_length=256)


def test_the_windows_cache_is_a_choice_where_a_workload_outgrows_the_window() -> None:
    assert values("swa_full", GEMMA, RAG) == (False, True)
    assert ENGINE.default(machine(), GEMMA, RAG).get("swa_full") is True
    assert "swa_full" not in ENGINE.default(machine(), GEMMA, CHAT).as_dict()
    assert "swa_full" not in ENGINE.default(machine(), MODEL, RAG).as_dict()
    assert violation(GEMMA, RAG, swa_full=False) is None
    assert "no sliding window" in (violation(MODEL, RAG, swa_full=False) or "")
    assert "allowed is true or false" in (violation(GEMMA, RAG, swa_full=1) or "")


def test_mapping_and_locking_are_settings_that_no_search_varies() -> None:
    assert (values("mmap"), values("mlock")) == ((True,), (False,))
    assert violation(mmap=False) is None
    assert "allowed is true or false" in (violation(mmap="off") or "")


def test_e17_a_lock_above_the_limit_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "lock_limit_bytes", lambda: 64 << 10)
    reason = violation(mlock=True) or ""
    assert "limit 64 KiB < model 94 MiB" in reason
    assert "root" in reason
    # The variant's size counts, not the source's.
    default = ENGINE.default(machine(), MODEL, CHAT).with_settings(mlock=True)
    bigger = replace(default, variant="f16")
    monkeypatch.setattr(locking, "lock_limit_bytes", lambda: 100 << 20)
    assert ENGINE.violation(default, machine(), MODEL, CHAT) is None
    assert "model 25" in (ENGINE.violation(bigger, machine(), MODEL, CHAT) or "")
    monkeypatch.setattr(locking, "lock_limit_bytes", lambda: None)
    assert ENGINE.violation(bigger, machine(), MODEL, CHAT) is None


def test_e17_an_ordinary_user_may_lock_no_more_than_the_limit() -> None:
    code = (
        "from tests.support.privileges import drop_privileges\n"
        "from tuner.engines.llama_cpp.locking import lock_problem\n"
        "drop_privileges(lockable_bytes=64 << 10)\n"
        "print(lock_problem(94 << 20))\n"
        "print(lock_problem(32 << 10))\n"
    )
    ending = process.run([sys.executable, "-P", "-c", code], deadline_s=60)
    above, within = ending.stdout.decode().splitlines()
    assert above.startswith("mlock=true: limit 64 KiB < model 94 MiB; allowed is false")
    assert within == "None"


SEVERAL = ("n_seq_max", "kv_unified", "active_streams", "prefill_chunk")


NODES = (NumaNode(0, (0,)), NumaNode(1, (1,)), NumaNode(2, ()))


def test_e18_numa_strategies_exist_where_several_nodes_may_be_used() -> None:
    both = machine(numa_nodes=NODES)
    assert values("numa", on=both) == ("off", "distribute", "isolate", "numactl")
    assert ENGINE.default(both, MODEL, CHAT).get("numa") == "off"
    confined = machine(effective=1, logical=2, numa_nodes=NODES)
    for other in (machine(), confined):
        assert "numa" not in {d.name for d in ENGINE.dimensions(other, MODEL, CHAT)}
        assert ENGINE.default(other, MODEL, CHAT).get("numa") is None


@pytest.mark.parametrize(
    ("strategy", "placed", "said"),
    [
        ("distribute", "none", None),
        ("isolate", "none", None),
        ("numactl", "node1", None),
        ("off", "node1", None),
        ("distribute", "node1", "numa=distribute with placement=node1: it places the threads itself"),
        ("isolate", "cores", "numa=isolate with placement=cores"),
        ("numactl", "none", "numa=numactl with placement=none: it keeps to a node"),
        ("mirror", "none", "numa=mirror: allowed is off, distribute, isolate, numactl"),
    ],
)
def test_a_strategy_and_a_placement_that_contradict_each_other(
    strategy: str, placed: str, said: str | None
) -> None:
    found = violation(numa=strategy, placement=placed)
    assert found is None if said is None else (found or "").startswith(said)


def test_several_streams_have_settings_of_their_own() -> None:
    assert not set(SEVERAL) & {d.name for d in ENGINE.dimensions(machine(), MODEL, CHAT)}
    assert not set(SEVERAL) & set(ENGINE.default(machine(), MODEL, CHAT).as_dict())
    assert values("n_seq_max", workload=BATCH) == values("active_streams", workload=BATCH) == (1, 2, 4, 8)
    assert values("active_streams", workload=replace(BATCH, streams=3)) == (1, 2, 3)
    assert values("kv_unified", workload=BATCH) == (False, True)
    assert values("prefill_chunk", workload=BATCH) == (32, 128, 512)
    default = ENGINE.default(machine(), MODEL, BATCH)
    assert [default.get(name) for name in SEVERAL] == [8, False, 8, 512]
    scopes = {d.name: d.scope for d in ENGINE.dimensions(machine(), MODEL, BATCH)}
    assert [scopes[name] for name in SEVERAL] == [Scope.CONTEXT, Scope.CONTEXT, Scope.RUN, Scope.RUN]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        # No more run than the cache has sequences.
        ({"n_seq_max": 4}, {"n_seq_max": 4, "active_streams": 4}),
        ({"active_streams": 2}, {"n_seq_max": 8, "active_streams": 2}),
        # One alone has nothing beside it, and decodes on its own threads.
        ({"active_streams": 1, "prefill_chunk": 32}, {"prefill_chunk": 512, "n_threads": 1}),
        ({"active_streams": 2, "prefill_chunk": 32}, {"prefill_chunk": 32, "n_threads": 2}),
        ({"n_seq_max": 1, "kv_unified": True}, {"kv_unified": False, "active_streams": 1}),
    ],
)
def test_streams_that_are_served_alike_are_one_configuration(
    asked: dict[str, Any], found: dict[str, Any]
) -> None:
    config = ENGINE.default(machine(), MODEL, BATCH).with_settings(n_threads=1, n_threads_batch=2, **asked)
    canonical = ENGINE.canonical(config, MODEL, BATCH)
    assert {name: canonical.get(name) for name in found} == found
    assert ENGINE.violation(canonical, machine(), MODEL, BATCH) is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"n_seq_max": 9}, "n_seq_max=9: allowed is 1 to 8, the streams"),
        ({"active_streams": 0}, "active_streams=0: allowed is 1 to 8, the streams"),
        ({"prefill_chunk": 0}, "prefill_chunk=0: allowed is 1 to 8192"),
        ({"kv_unified": "on"}, "kv_unified=on: allowed is true or false"),
    ],
)
def test_streams_that_can_not_be_served_are_refused(asked: dict[str, Any], said: str) -> None:
    assert violation(workload=BATCH, **asked) == said
