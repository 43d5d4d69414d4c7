"""What OpenVINO describes, without OpenVINO."""

from __future__ import annotations

from dataclasses import replace

import pytest

from probes.core_kinds import CoreKind
from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Workload
from tuner.engines.base import SOURCE
from tuner.engines.openvino.describe import OpenVino

ENGINE = OpenVino()
CHAT = Workload("chat", 128, 128)
BATCH = Workload("batch", 128, 128, streams=8, objective="decode_tps")


def dimensions(
    machine: Machine, model: ModelInfo, workload: Workload = CHAT
) -> dict[str, tuple[object, ...]]:
    return {d.name: d.values for d in ENGINE.dimensions(machine, model, workload)}


def test_a_gguf_that_is_read_exactly_is_the_first_variant(exact_info: ModelInfo) -> None:
    given, exact, *integers = ENGINE.recipes(exact_info)
    assert (given.label, given.format, given.made_from) == ("gguf", "openvino", None)
    assert [(one.label, one.format, one.needs) for one in exact.chain] == [
        ("f16", "gguf", ("gguf",)),
        ("f16", "openvino", ("gguf",)),
    ]
    assert [(one.label, one.made_from, one.needs) for one in integers] == [
        ("int8", exact, ("nncf",)),
        ("int4", exact, ("nncf",)),
    ]
    assert ENGINE.reference(exact_info) == exact


def test_what_the_reader_rounds_is_not_taken_for_the_file_as_given(demo_info: ModelInfo) -> None:
    assert [one.label for one in ENGINE.recipes(demo_info)] == ["f16", "gguf", "int8", "int4"]
    assert ENGINE.default(Machine(), demo_info, CHAT).variant == "f16"


def test_floats_are_their_own_reference(demo_info: ModelInfo) -> None:
    floats = replace(demo_info, tensor_mix=(("f16", 1000), ("f32", 10)))
    assert [one.label for one in ENGINE.recipes(floats)] == ["gguf", "int8", "int4"]
    assert ENGINE.reference(floats).label == "gguf"


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_floats_that_the_reader_lacks_become_f16_first(demo_info: ModelInfo, kind: str) -> None:
    floats = replace(demo_info, tensor_mix=((kind, 1000), ("f32", 10)) if kind != "f32" else (("f32", 1000),))
    assert [one.label for one in ENGINE.recipes(floats)] == ["f16", "int8", "int4"]
    assert [one.maker for one in ENGINE.reference(floats).chain] == ["tuner.engines.openvino.widen", None]


def test_types_that_the_reader_lacks_are_dequantized_first(demo_info: ModelInfo) -> None:
    mixed = replace(demo_info, tensor_mix=(("q4_k", 1000), ("q5_0", 10)))
    assert [one.label for one in ENGINE.recipes(mixed)] == ["f16", "int8", "int4"]
    assert ENGINE.default(Machine(), mixed, CHAT).variant == "f16"


def test_a_hugging_face_folder_goes_through_a_gguf(demo_info: ModelInfo) -> None:
    folder = replace(demo_info, format="huggingface", tensor_mix=(("bf16", 1000),))
    first, *_rest = ENGINE.recipes(folder)
    assert [one.maker for one in first.chain] == [
        "tuner.engines.conversion.to_gguf", "tuner.engines.openvino.widen", None,
    ]  # fmt: skip


def test_a_folder_of_openvino_is_taken_as_it_is(demo_info: ModelInfo) -> None:
    folder = replace(demo_info, format="openvino", architecture="gemma3", tensor_mix=(("u4", 1000),))
    assert ENGINE.refuses(folder) is None
    first, exact, *_rest = ENGINE.recipes(folder)
    assert first.label == SOURCE
    assert exact.made_from is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architecture": "gemma3"}, "architecture gemma3: allowed are llama, qwen2, qwen3"),
        ({"has_tokenizer": False}, "needs a model with a tokenizer"),
    ],
)
def test_what_can_not_be_converted_is_said_before_any_trial(
    demo_info: ModelInfo, change: dict[str, object], said: str
) -> None:
    assert ENGINE.refuses(demo_info) is None
    assert said in (ENGINE.refuses(ModelInfo.from_json({**demo_info.to_json(), **change})) or "")


def test_labels_are_all_that_it_makes(demo_info: ModelInfo) -> None:
    assert {one.label for one in ENGINE.recipes(demo_info)} <= set(ENGINE.variant_labels)


def test_settings_exist_where_they_are_a_choice(demo_info: ModelInfo) -> None:
    plain = Machine()
    assert {"enable_hyper_threading", "scheduling_core_type"}.isdisjoint(dimensions(plain, demo_info))
    assert dimensions(plain, demo_info)["inference_precision_hint"] == ("f32",)
    assert dimensions(plain, demo_info)["kv_cache_precision"] == ("u8", "f16", "f32")
    threads = replace(plain.topology, threads_per_core=2)
    kinds = (CoreKind("performance", (0, 1), 2), CoreKind("efficiency", (2, 3), 2))
    rich = replace(plain, topology=threads, core_kinds=kinds, features=("avx512_bf16",))
    assert dimensions(rich, demo_info)["enable_hyper_threading"] == (False, True)
    assert dimensions(rich, demo_info)["scheduling_core_type"] == ("ANY_CORE", "PCORE_ONLY", "ECORE_ONLY")
    assert dimensions(rich, demo_info)["inference_precision_hint"] == ("bf16", "f32")
    assert "active_streams" not in dimensions(rich, demo_info)
    assert dimensions(rich, demo_info, BATCH)["active_streams"] == (1, 2, 4, 8)


def test_e08_the_kv_precision_is_always_said_and_judged(machine: Machine, exact_info: ModelInfo) -> None:
    config = ENGINE.default(machine, exact_info, CHAT)
    assert config.get("kv_cache_precision") == "u8"
    judged = {d.name for d in ENGINE.dimensions(machine, exact_info, CHAT) if d.affects_quality}
    assert "kv_cache_precision" in judged


def test_e07_pinning_is_searched(machine: Machine, demo_info: ModelInfo) -> None:
    assert dimensions(machine, demo_info)["enable_cpu_pinning"] == (False, True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"inference_num_threads": 4096}, "inference_num_threads=4096: allowed is 1 to "),
        ({"inference_precision_hint": "f32", "kv_cache_precision": "bf16"}, "allowed is u8, f16, f32"),
        ({"attention_backend": "flash"}, "attention_backend=flash: allowed is sdpa, paged"),
    ],
)
def test_what_can_not_run_is_refused(
    machine: Machine, demo_info: ModelInfo, settings: dict[str, str | int], said: str
) -> None:
    config = ENGINE.default(machine, demo_info, CHAT).with_settings(**settings)
    assert said in (ENGINE.violation(config, machine, demo_info, CHAT) or "")


def test_what_crashes_openvino_is_not_tried(exact_info: ModelInfo) -> None:
    machine = replace(Machine(), features=("avx512_bf16", "amx_bf16"))
    floats = replace(exact_info, tensor_mix=(("f16", 1000),))
    assert ENGINE.default(machine, floats, CHAT).get("inference_precision_hint") == "f32"
    one = ENGINE.default(machine, exact_info, CHAT)
    assert (one.get("inference_num_threads"), one.get("inference_precision_hint")) == (1, "bf16")
    assert ENGINE.violation(one, machine, exact_info, CHAT) is None
    wide = Config("openvino", "f16", one.settings)
    assert "SIGFPE" in (ENGINE.violation(wide, machine, exact_info, CHAT) or "")


def test_more_threads_than_cores_need_hyper_threading(demo_info: ModelInfo) -> None:
    shape = Machine().topology
    topology = replace(shape, threads_per_core=2, physical_cores=2, logical_cpus=4)
    effective = replace(Machine().effective, cpus=(0, 1, 2, 3), cpu_count=4)
    machine = replace(Machine(), topology=topology, effective=effective)
    config = ENGINE.default(machine, demo_info, CHAT)
    assert config.get("inference_num_threads") == 2
    many = config.with_settings(inference_num_threads=4)
    assert "without enable_hyper_threading" in (ENGINE.violation(many, machine, demo_info, CHAT) or "")
    both = many.with_settings(enable_hyper_threading=True)
    assert ENGINE.violation(both, machine, demo_info, CHAT) is None


def test_one_form_for_what_behaves_alike(machine: Machine, demo_info: ModelInfo) -> None:
    default = ENGINE.default(machine, demo_info, BATCH)
    alone = ENGINE.canonical(default.with_settings(attention_backend="sdpa"), demo_info, BATCH)
    assert (alone.get("active_streams"), alone.get("prefill_chunk")) == (1, 1024)
    exact = Config("openvino", "f16", default.settings)
    assert ENGINE.canonical(exact, demo_info, BATCH).get("dynamic_quantization_group_size") == 0
