"""The description: pure, so it is tested on machines and models that aren't here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from probes.effective import Effective
from probes.machine import Machine
from probes.topology import Topology
from profiles.vocabulary import WORKLOADS, Config, ModelInfo
from tuner.engines.base import Phase, Scope
from tuner.engines.onnxruntime import variants
from tuner.engines.onnxruntime.describe import OnnxRuntime

ENGINE = OnnxRuntime()
CHAT, RAG, BATCH = (WORKLOADS[name] for name in ("chat", "rag", "batch"))
GGUF = ModelInfo(
    name="m", digest="d", format="gguf", architecture="llama", parameter_count=134_515_008, layer_count=30,
    hidden_size=576, head_count=9, kv_head_count=3, key_length=64, value_length=64, vocabulary_size=49152,
    context_length=8192, file_bytes=98_362_432, tensor_mix=(("q4_1", 98_362_432),), bits_per_weight=5.74,
)  # fmt: skip


def machine(effective: int, logical: int | None = None, quota: float | None = None) -> Machine:
    usable = Effective(cpus=tuple(range(effective)), cpu_count=int(quota or effective), cpu_quota=quota)
    topology = Topology(logical_cpus=logical or effective, physical_cores=effective)
    return Machine(topology=topology, effective=usable)


def config(**settings: object) -> Config:
    default = ENGINE.default(machine(4), GGUF, CHAT)
    return Config.of("onnxruntime", "int8", {**default.as_dict(), **settings})


@pytest.mark.parametrize(("logical", "threads"), [(1, 1), (2, 1), (12, 6), (64, 16)])
def test_the_default_is_genai_s_own(logical: int, threads: int) -> None:
    found = ENGINE.default(machine(1, logical=logical), GGUF, CHAT)
    assert found.get("intra_op_num_threads") == threads
    assert found.variant == "fp32"


def test_e02_the_pool_fits_the_quota_not_the_host() -> None:
    box = machine(12, quota=2.0)
    (threads,) = (d for d in ENGINE.dimensions(box, GGUF, CHAT) if d.name == "intra_op_num_threads")
    assert threads.values == (1, 2)
    wide = config(intra_op_num_threads=12)
    assert "allowed is 1 to 2" in (ENGINE.violation(wide, box, GGUF, CHAT) or "")


def test_prompts_are_read_in_parts_only_where_they_are_longer() -> None:
    chunks = {
        workload.name: next(
            d for d in ENGINE.dimensions(machine(2), GGUF, workload) if d.name == "prefill_chunk"
        )
        for workload in (CHAT, RAG, BATCH)
    }
    assert chunks["chat"].values == (128,)
    assert chunks["rag"].values == (128, 512, 2048)
    assert chunks["rag"].default == 2048
    assert chunks["rag"].phases == {Phase.PREFILL}
    assert chunks["rag"].scope is Scope.RUN
    assert chunks["batch"].phases == frozenset(Phase)


def test_one_form_for_what_behaves_alike() -> None:
    assert ENGINE.canonical(config(prefill_chunk=4096), GGUF, CHAT).get("prefill_chunk") == 128
    assert ENGINE.canonical(config(prefill_chunk=64), GGUF, CHAT).get("prefill_chunk") == 64
    alone = config(intra_op_num_threads=1, spinning="off")
    assert ENGINE.canonical(alone, GGUF, CHAT).get("spinning") == "on"
    together = config(intra_op_num_threads=2, spinning="off")
    assert ENGINE.canonical(together, GGUF, CHAT).get("spinning") == "off"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"intra_op_num_threads": 0}, "allowed is 1 to 4"),
        ({"spinning": "maybe"}, "allowed is off, short, on"),
        ({"graph_optimization_level": "most"}, "allowed is disabled, basic, extended, all"),
        ({"prefill_chunk": 0}, "allowed is 1 to"),
    ],
)
def test_violations_say_what_is_allowed(settings: dict[str, object], said: str) -> None:
    assert said in (ENGINE.violation(config(**settings), machine(4), GGUF, CHAT) or "")


def test_a_workload_above_the_model_s_context() -> None:
    short = replace(GGUF, context_length=200)
    assert "200" in (ENGINE.violation(config(), machine(4), short, CHAT) or "")


def test_the_steps_from_a_gguf_file() -> None:
    chains = {r.label: [step.label for step in r.chain] for r in ENGINE.recipes(GGUF)}
    assert chains["fp32"] == ["huggingface", "fp32"]
    assert chains["int8"] == ["huggingface", "fp32", "int8"]
    assert chains["int4_b32"] == ["huggingface", "int4_b32"]
    assert set(chains) == set(variants.LABELS) - {"int4_b128"}
    assert ENGINE.reference(GGUF).label == "fp32"


@pytest.mark.parametrize(
    ("hidden", "heads", "labels"),
    [(576, 9, {"int4_b32"}), (640, 10, {"int4_b32"}), (1024, 16, {"int4_b32", "int4_b128"}),
     (1024, 9, {"int4_b32"}), (2048, 32, {"int4_b32", "int4_b128"})],
)  # fmt: skip
def test_blocks_that_the_builder_can_not_write_are_not_tried(
    hidden: int, heads: int, labels: set[str]
) -> None:
    """An odd number of them in a row: SmolLM2's 576 and Gemma 3's 640 in blocks of 128."""
    model = replace(GGUF, hidden_size=hidden, head_count=heads)
    assert {recipe.label for recipe in ENGINE.recipes(model) if recipe.label.startswith("int4")} == labels


def test_a_hugging_face_folder_saves_the_first_step() -> None:
    folder = replace(GGUF, format="huggingface")
    assert [step.label for step in ENGINE.recipes(folder)[0].chain] == ["fp32"]


def test_a_folder_of_its_own_is_run_as_it_is() -> None:
    folder = replace(GGUF, format="onnx", architecture="anything")
    assert ENGINE.refuses(folder) is None
    (only,) = ENGINE.recipes(folder)
    assert only.is_source
    assert only.format == "onnx"
    assert ENGINE.default(machine(2), folder, CHAT).variant == "source"


def test_an_architecture_without_a_graph_is_said_before_any_trial() -> None:
    refused = ENGINE.refuses(replace(GGUF, architecture="rwkv7")) or ""
    assert "no graph for the architecture 'rwkv7'" in refused
    assert "llama" in refused
    assert "can't be converted" in (ENGINE.refuses(replace(GGUF, architecture="olmo")) or "")
    assert ENGINE.refuses(GGUF) is None
