"""Popular advice on running language models on CPUs, one row each, with what is compared to check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probes.machine import Machine
from tests.benchmarks import advice_served
from tests.benchmarks.advice_served import Cells
from tests.benchmarks.advice_sides import (
    ONNX,
    OPENVINO,
    PYTORCH,
    Side,
    Sides,
    against_cores,
    cores_of,
    engines,
    placed,
    settings,
    variants,
)

COLD_START_MS = 3000.0

Document = Mapping[str, Any]
"""What `cputune compare --json` prints."""


@dataclass(frozen=True)
class Row:
    """One piece of advice: `holds` says when, `sides` what is compared, `served` measures it on a service;
    without them `follows` says why not.

    `shown` are the metrics, besides the response, that the advice is about; `says` gives the finding. A slow
    one gets more time; `lengths` are prompt and output tokens in place of chat's.
    """

    name: str
    advice: str
    holds: str
    sides: Callable[[Machine], Sides] | None = None
    shown: tuple[str, ...] = ()
    says: Callable[[Document], str] | None = None
    served: Callable[[Path], Cells] | None = None
    follows: str = ""
    slow: bool = False
    lengths: tuple[int, int] | None = None


def finding(document: Document) -> str:
    """Whether the advised side was shown to be faster."""
    verdicts = {"b": "holds here", "a": "does not hold here: slower"}
    return verdicts.get(document["verdict"], str(document["verdict"]))


# --- findings of their own -----------------------------------------------------------------------


def cold_start(document: Document) -> str:
    """Whether load and first request stay below what the advice asks."""
    metrics = document["a"]["metrics"]
    total_ms = metrics["load_ms"] + metrics["first_request_ms"]
    return f"{'holds here' if total_ms <= COLD_START_MS else 'does not hold here'}: {total_ms / 1000:.2f} s"


def as_found(document: Document) -> str:
    """What somebody gets who changes nothing."""
    metrics = document["b"]["metrics"]
    first_s, rate = metrics["ttft_ms.p50"] / 1000, metrics["decode_tps.p50"]
    return f"here {first_s:.2f} s to the first token, then {rate:.0f} tokens/s"


def under_load_only(document: Document) -> str:
    """Whether there is a reason to keep the large weights while it is quiet."""
    if document["verdict"] == "b":
        return "does not hold here: the small one is faster without load too"
    return "holds here" if document["verdict"] == "a" else str(document["verdict"])


def saves_memory(document: Document) -> str:
    """Whether memory was saved; with the speed that it costs or brings."""
    before, after = (document[side]["metrics"]["peak_rss_mib"] for side in "ab")
    saved = before - after
    held = "holds here" if saved > 1 else "does not hold here"
    return f"{held}: {saved:.0f} MiB saved; response {document['ratio']['estimate']:.2f}x"


MEMORY = ("peak_rss_mib",)
ROWS = (
    Row(
        "transformers",
        "Transformers with 32-bit floats, as found: a second to the first token, then 5 to 20 tokens/s",
        "It is where articles begin. Beside llama.cpp's defaults on the same file.",
        engines(Side({}), PYTORCH),
        ("ttft_ms.p50", "decode_tps.p50"),
        as_found,
        slow=True,
    ),
    Row(
        "kv-cache",
        "Switch the KV cache on and feed only the new token",
        "Always, and the more the longer the text; llama.cpp has no other way.",
        engines(replace(PYTORCH, settings={"use_cache": False}), PYTORCH),
        ("tpot_ms.p50",),
        slow=True,
        lengths=(64, 16),
    ),
    Row(
        "bf16",
        "16-bit brain floats gain about a fifth where the CPU multiplies them",
        "Against f16 weights: with AVX-512 BF16 or AMX; without, bf16 is widened first.",
        variants("f16", "bf16"),
        ("ttft_ms.p50", "tpot_ms.p50"),
    ),
    Row(
        "beams",
        "No beam search",
        "Each beam is a stream more to decode.",
        engines(replace(PYTORCH, settings={"beams": 4}), PYTORCH),
        slow=True,
    ),
    Row(
        "ipex",
        "Intel's extension for PyTorch gains 15 to 25 %",
        "-",
        follows="It is retired: its kernels went into PyTorch, which every row on Transformers runs",
    ),
    Row(
        "bitsandbytes",
        "8-bit weights by bitsandbytes halve the first token's time",
        "On graphics cards, for which it was made.",
        engines(PYTORCH, replace(PYTORCH, variant="int8_bnb")),
        ("ttft_ms.p50", "tpot_ms.p50"),
        slow=True,
    ),
    Row(
        "onnx-fp32",
        "ONNX Runtime with 32-bit floats, all graph optimizations, a thread a core: a third less time",
        "Against Transformers in 32-bit floats.",
        engines(PYTORCH, Side({}, "fp32", ONNX)),
        ("ttft_ms.p50", "tpot_ms.p50"),
        slow=True,
    ),
    Row(
        "onnx-int8",
        "ONNX Runtime with dynamic 8-bit weights: a third less per token, half the file, answers a bit worse",
        "Look at the quality: one scale for all activations may ruin the answers (docs/engines.md).",
        engines(Side({}, "fp32", ONNX), Side({}, "int8", ONNX)),
        ("tpot_ms.p50", "peak_rss_mib"),
        slow=True,
    ),
    Row(
        "openvino",
        "OpenVINO with a paged KV cache: 40 % off the first token's time",
        "With many streams at a time; for one, both compute the prompt alike.",
        engines(
            Side({"attention_backend": "sdpa"}, "f16", OPENVINO),
            Side({"attention_backend": "paged"}, "f16", OPENVINO),
        ),
        ("ttft_ms.p50",),
        slow=True,
    ),
    Row(
        "q8_0",
        "llama.cpp with q8_0 in place of 16 bits: more than twice the speed, half the memory",
        "Where reading weights bounds decoding. Prefill may lose where the CPU multiplies floats in tiles.",
        variants("f16", "q8_0"),
        ("ttft_ms.p50", "decode_tps.p50", "peak_rss_mib"),
    ),
    Row(
        "q4_k_m",
        "llama.cpp with q4_k_m: 40 % faster again",
        "Only with rows of a multiple of 256 and a source of more bits; look at the quality first.",
        variants("q8_0", "q4_k_m"),
        ("tpot_ms.p50", "peak_rss_mib"),
    ),
    Row(
        "threads-1.5x",
        "1.5 times as many threads as cores",
        "Not beyond the CPUs: threads that wait for each other spin and take the time of those that work.",
        against_cores(lambda machine: max(cores_of(machine) * 3 // 2, cores_of(machine) + 1)),
    ),
    Row(
        "threads-2x",
        "Twice as many threads as cores",
        "At most where a core has two hardware threads, and seldom then.",
        against_cores(lambda machine: cores_of(machine) * 2),
    ),
    Row(
        "threads-half",
        "Half as many threads as hardware threads, rather than one a core",
        "It is one a core where a core has two hardware threads; and beside a busy neighbour.",
        against_cores(lambda machine: max(machine.effective.cpu_count // 2, 1)),
    ),
    Row(
        "batch-large",
        "n_batch from 32 to 128, the larger the better",
        "As far as the prompt is long; decoding is not touched.",
        settings({"n_ubatch": 32}, {"n_ubatch": 128}),
        ("ttft_ms.p50", "tpot_ms.p50"),
    ),
    Row(
        "batch-streaming",
        "n_batch from 4 to 8 for streaming",
        "Never for a single stream: tokens come one by one anyway, only the prompt is slower.",
        settings({}, {"n_ubatch": 8}),
        ("ttft_ms.p50", "tpot_ms.p50"),
    ),
    Row(
        "ubatch-small",
        "n_ubatch from 8 to 16",
        "It saves a little memory for the prompt's computation.",
        settings({}, {"n_ubatch": 16}),
        ("ttft_ms.p50", "peak_rss_mib"),
    ),
    Row(
        "kv-q8_0",
        "A q8_0 KV cache saves memory",
        "With long contexts; at a few hundred tokens the cache is small. The answers change a little.",
        settings({"flash_attn": "on"}, {"flash_attn": "on", "type_k": "q8_0", "type_v": "q8_0"}),
        MEMORY,
        saves_memory,
    ),
    Row(
        "mmap-off",
        "No mapping of the file for small models (others: mapping for all)",
        "It decides load time and memory; once the weights are read, speed is equal.",
        settings({"mmap": True}, {"mmap": False}),
        ("load_ms", "peak_rss_mib"),
    ),
    Row(
        "pinning",
        "Pin the process to cores (taskset), bind it to a NUMA node (numactl): 30 % fewer context switches",
        "With several NUMA nodes, or kinds of core, or two hardware threads a core.",
        placed,
        ("switches_per_token",),
    ),
    Row(
        "request-batches",
        "Collect requests for 100 ms and run them as a batch: 5 to 8 requests/s",
        "Batches pay; waiting for them does not, where requests can join a running one.",
        served=advice_served.request_batches,
    ),
    Row(
        "kept-conversation",
        "Keep a conversation's KV cache, encode the system prompt once: 60 % off the next turn's first token",
        "Wherever a prompt takes longer to compute than its cache to keep: the longer, the more.",
        served=advice_served.kept_conversation,
    ),
    Row(
        "cold-start",
        "Warm up before the first request; a cold start within 3 s",
        "As long as the file is in the page cache, and small.",
        settings({"mmap": True}, {"mmap": False}),
        ("load_ms", "first_request_ms"),
        cold_start,
    ),
    Row(
        "streaming",
        "Stream by server-sent events, sleep 10 ms between tokens, debounce in the page",
        "The sleep alone costs more than most tokens here take.",
        served=advice_served.streaming,
    ),
    Row(
        "int8-under-load",
        "Large weights normally, 8-bit ones when load rises",
        "Only where the large ones are faster while it is quiet, or the small ones' answers too bad.",
        variants("f16", "q8_0"),
        says=under_load_only,
    ),
)  # fmt: skip
