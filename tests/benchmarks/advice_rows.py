"""Popular advice on running language models on CPUs, one row each, with what is compared to check it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.machine import Machine
from profiles.vocabulary import Setting
from tests.benchmarks import advice_served
from tests.benchmarks.advice_served import Cells
from tuner.measurement import placement

ENGINE = "llama_cpp"
ENGINES = "follows with the other engines"
COLD_START_MS = 3000.0


class NothingToCompareError(Exception):
    """On this machine the advice and its opposite are the same."""


@dataclass(frozen=True)
class Side:
    """A configuration as a file for `cputune compare` holds it; the default's where nothing is said."""

    settings: Mapping[str, Setting]
    variant: str = "source"

    def document(self) -> dict[str, object]:
        """What the file holds."""
        return {"engine": ENGINE, "variant": self.variant, "settings": dict(self.settings)}


Sides = tuple[Side, Side]
"""Without the advice, with it."""
Document = Mapping[str, Any]
"""What `cputune compare --json` prints."""


@dataclass(frozen=True)
class Row:
    """One piece of advice: `holds` says when, `sides` what is compared, `served` measures it on a service;
    without them `follows` says why not.

    `shown` are the metrics, besides the response, that the advice is about; `says` gives the finding.
    """

    name: str
    advice: str
    holds: str
    sides: Callable[[Machine], Sides] | None = None
    shown: tuple[str, ...] = ()
    says: Callable[[Document], str] | None = None
    served: Callable[[Path], Cells] | None = None
    follows: str = ""


def finding(document: Document) -> str:
    """Whether the advised side was shown to be faster."""
    verdicts = {"b": "holds here", "a": "does not hold here: slower"}
    return verdicts.get(document["verdict"], str(document["verdict"]))


# --- what is compared ----------------------------------------------------------------------------


def cores_of(machine: Machine) -> int:
    """The physical cores that may be used."""
    every = machine.effective.cpu_count
    return min(machine.physical_cores or every, every)


def threads(count: int) -> dict[str, Setting]:
    """One number of threads for both phases, as a --threads flag sets it."""
    return {"n_threads": count, "n_threads_batch": count}


def against_cores(count: Callable[[Machine], int]) -> Callable[[Machine], Sides]:
    """A number of threads against one a physical core."""

    def sides(machine: Machine) -> Sides:
        cores, advised = cores_of(machine), count(machine)
        if cores == advised:
            raise NothingToCompareError(f"both are {cores} here")
        return Side(threads(cores)), Side(threads(advised))

    return sides


def variants(before: str, after: str) -> Callable[[Machine], Sides]:
    """Two variants under the same settings."""
    return lambda machine: (
        Side(threads(cores_of(machine)), before),
        Side(threads(cores_of(machine)), after),
    )


def settings(before: Mapping[str, Setting], after: Mapping[str, Setting]) -> Callable[[Machine], Sides]:
    """Two values of something, all else alike."""
    return lambda machine: (
        Side({**threads(cores_of(machine)), **before}),
        Side({**threads(cores_of(machine)), **after}),
    )


def placed(machine: Machine) -> Sides:
    """Left to the scheduler, against the first placement that is a choice here."""
    choices = placement.choices(machine)
    if not choices:
        raise NothingToCompareError("each CPU is a core of its own and there is one NUMA node")
    name, cpus = next(iter(choices.items()))
    count = threads(min(len(cpus), cores_of(machine)))
    return Side(count), Side({**count, "placement": name})


# --- findings of their own -----------------------------------------------------------------------


def cold_start(document: Document) -> str:
    """Whether load and first request stay below what the advice asks."""
    metrics = document["a"]["metrics"]
    total_ms = metrics["load_ms"] + metrics["first_request_ms"]
    return f"{'holds here' if total_ms <= COLD_START_MS else 'does not hold here'}: {total_ms / 1000:.2f} s"


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
        "-",
        follows=ENGINES,
    ),
    Row(
        "kv-cache",
        "Switch the KV cache on and feed only the new token",
        "Always; llama.cpp has no other way.",
        follows=ENGINES,
    ),
    Row(
        "bf16",
        "16-bit brain floats gain about a fifth where the CPU multiplies them",
        "Against f16 weights: with AVX-512 BF16 or AMX; without, bf16 is widened first.",
        variants("f16", "bf16"),
        ("ttft_ms.p50", "tpot_ms.p50"),
    ),
    Row("beams", "No beam search", "Each beam is a stream more to decode.", follows=ENGINES),
    Row("ipex", "Intel's extension for PyTorch gains 15 to 25 %", "-", follows=ENGINES),
    Row("bitsandbytes", "8-bit weights by bitsandbytes halve the first token's time", "-", follows=ENGINES),
    Row(
        "onnx-fp32",
        "ONNX Runtime with 32-bit floats, all graph optimizations, a thread a core: a third less time",
        "-",
        follows=ENGINES,
    ),
    Row(
        "onnx-int8",
        "ONNX Runtime with dynamic 8-bit weights: a third less per token, half the file, answers a bit worse",
        "-",
        follows=ENGINES,
    ),
    Row("openvino", "OpenVINO with a paged KV cache: 40 % off the first token's time", "-", follows=ENGINES),
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
