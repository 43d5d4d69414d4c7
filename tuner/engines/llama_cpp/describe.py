"""Describes llama.cpp through llama-cpp-python: variants, dimensions, defaults, constraints."""

from __future__ import annotations

from collections.abc import Mapping

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner.engines.base import BOTH_PHASES, SOURCE, Dimension, Phase, Recipe, Scope
from tuner.engines.conversion import gguf_problem
from tuner.engines.llama_cpp import variants
from tuner.engines.llama_cpp.locking import lock_problem
from tuner.engines.threads import thread_counts

UBATCHES = (16, 32, 64, 128, 256, 512)
DEFAULT_UBATCH = 512
MOST_UBATCH = 8192
"""What a user's own command may ask for; searches end at the default."""

PREFILL_CHUNKS = (32, 128, DEFAULT_UBATCH)
"""Prompt tokens that enter a step beside sequences that generate; the last is all that a batch holds."""

NUMA_STRATEGIES = ("off", "distribute", "isolate", "numactl")
"""Threads over all nodes in turn, on the node where the process starts, or on what it is bound to."""

KV_TYPES = ("q4_0", "q8_0", "f16")
KV_BLOCK = 32
"""A quantized KV cache holds blocks of 32 values, so a head's size must be a multiple."""

_PROBE = """
import json
from tuner.engines.llama_cpp import smoke
print(json.dumps(smoke.run()))
"""


class LlamaCpp:
    """llama.cpp's low-level API, with llama-cpp-python's defaults as the default."""

    name = "llama_cpp"
    formats = ("gguf", "huggingface")
    variant_labels = (SOURCE, *variants.LABELS)
    session = "tuner.engines.llama_cpp.session:LlamaSession"
    scorer = "tuner.engines.llama_cpp.scorer:LlamaScorer"
    has_openmp = True
    everyday: str | None = "tuner.engines.llama_cpp.everyday:EverydaySession"

    def probe_code(self) -> str:
        """Imports the bindings and decodes one token of a made-up model."""
        return _PROBE

    def maker(self) -> str:
        """The module that quantizes."""
        return "tuner.engines.llama_cpp.recipes"

    def refuses(self, model: ModelInfo) -> str | None:
        """Folders that can't be converted; of a GGUF file what it can't load it says when it loads."""
        return gguf_problem(model)

    def recipes(self, model: ModelInfo) -> tuple[Recipe, ...]:
        """The source, then every mix that is worth a look, from the most to the least exact."""
        return variants.recipes(model)

    def reference(self, model: ModelInfo) -> Recipe:
        """f16, or the file itself where its weights are not quantized."""
        return variants.reference(model)

    def dimensions(self, machine: Machine, model: ModelInfo, workload: Workload) -> tuple[Dimension, ...]:
        """Threads, batch, attention, KV types and repacking; mapping and locking, which are policy, at their
        defaults only; the window's cache where the workload outgrows a sliding window; for several streams
        also how many run at once, in what cache, and how prompts enter."""
        threads = thread_counts(machine)
        default = self.default(machine, model, workload).as_dict()
        prefill, decode = frozenset({Phase.PREFILL}), frozenset({Phase.DECODE})

        def dimension(
            name: str,
            values: tuple[Setting, ...],
            scope: Scope,
            role: Role,
            phases: frozenset[Phase] = BOTH_PHASES,
            affects_quality: bool = False,
        ) -> Dimension:
            return Dimension(name, values, default[name], scope, role, phases, affects_quality)

        ubatches = tuple(size for size in UBATCHES if size <= _largest_ubatch(workload))
        key_types = tuple(name for name in KV_TYPES if _head_problem("type_k", name, model) is None)
        value_types = tuple(name for name in KV_TYPES if _head_problem("type_v", name, model) is None)
        return (
            dimension("n_threads", threads, Scope.RUN, Role.THREADS, decode),
            dimension("n_threads_batch", threads, Scope.RUN, Role.THREADS, prefill),
            dimension("n_ubatch", ubatches, Scope.CONTEXT, Role.BATCH, prefill),
            dimension("flash_attn", ("off", "on"), Scope.CONTEXT, Role.KV),
            dimension("type_k", key_types, Scope.CONTEXT, Role.KV, affects_quality=True),
            dimension("type_v", value_types, Scope.CONTEXT, Role.KV, affects_quality=True),
            *(
                (dimension("swa_full", (False, True), Scope.CONTEXT, Role.KV),)
                if _outgrows_window(model, workload)
                else ()
            ),
            *(
                (
                    dimension("n_seq_max", stream_counts(workload), Scope.CONTEXT, Role.KV),
                    dimension("kv_unified", (False, True), Scope.CONTEXT, Role.KV),
                    dimension("active_streams", stream_counts(workload), Scope.RUN, Role.BATCH),
                    dimension("prefill_chunk", PREFILL_CHUNKS, Scope.RUN, Role.BATCH),
                )
                if workload.streams > 1
                else ()
            ),
            dimension("repack", (False, True), Scope.LOAD, Role.WEIGHTS),
            dimension("mmap", (True,), Scope.LOAD, Role.WEIGHTS),
            dimension("mlock", (False,), Scope.LOAD, Role.WEIGHTS),
            *(
                (dimension("numa", NUMA_STRATEGIES, Scope.PROCESS, Role.PLACEMENT),)
                if _has_nodes(machine)
                else ()
            ),
        )

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """llama-cpp-python's own: half of the machine-wide logical CPUs decode, all of them prefill.

        It looks neither at affinity nor at a quota, and that is kept: the baseline is what a user gets.
        """
        logical = machine.logical_cpus or machine.effective.cpu_count
        return Config.of(
            self.name,
            variants.given(model).label,
            {
                "n_threads": max(logical // 2, 1),
                "n_threads_batch": logical,
                "n_ubatch": DEFAULT_UBATCH,
                "flash_attn": "off",
                "type_k": "f16",
                "type_v": "f16",
                "repack": True,
                "mmap": True,
                "mlock": False,
                **({"numa": NUMA_STRATEGIES[0]} if _has_nodes(machine) else {}),
                **({"swa_full": True} if _outgrows_window(model, workload) else {}),
                **(_all_streams_at_once(workload) if workload.streams > 1 else {}),
            },
        )

    def starts(
        self, machine: Machine, model: ModelInfo, workload: Workload
    ) -> tuple[Mapping[str, Setting], ...]:
        """All CPUs to prefill; few, the cores and all to decode; flash attention both ways."""
        every = machine.effective.cpu_count
        cores = min(machine.physical_cores or every, every)
        common = {"n_threads_batch": every, "n_ubatch": _largest_ubatch(workload), "repack": True}
        exact = {"type_k": "f16", "type_v": "f16"}
        starts: list[Mapping[str, Setting]] = []
        for threads in dict.fromkeys((cores, max(cores // 2, 1), every)):
            starts += [
                {**common, **exact, "n_threads": threads, "flash_attn": flash} for flash in ("off", "on")
            ]
        return tuple(starts)

    def violation(self, config: Config, machine: Machine, model: ModelInfo, workload: Workload) -> str | None:
        """The first reason; the default's own thread counts pass even above the effective CPUs."""
        settings = config.as_dict()
        default = self.default(machine, model, workload)
        limit = machine.effective.cpu_count_ceiling
        for name in ("n_threads", "n_threads_batch"):
            value = settings.get(name, default.get(name))
            if value != default.get(name) and not _is_count(value, limit):
                return f"{name}={value}: allowed is 1 to {limit}, the effective CPUs"
        ubatch = settings.get("n_ubatch", DEFAULT_UBATCH)
        if not _is_count(ubatch, MOST_UBATCH):
            return f"n_ubatch={ubatch}: allowed is 1 to {MOST_UBATCH}"
        flash = settings.get("flash_attn", "off")
        if flash not in ("off", "on"):
            return f"flash_attn={flash}: allowed is off or on"
        for name in ("type_k", "type_v"):
            kind = settings.get(name, "f16")
            if kind not in KV_TYPES:
                return f"{name}={kind}: allowed is {', '.join(KV_TYPES)}"
            problem = _head_problem(name, str(kind), model)
            if problem is not None:
                return problem
        kind = settings.get("type_v", "f16")
        if kind != "f16" and flash == "off":
            return f"type_v={kind} needs flash_attn=on, but flash_attn={flash}: a quantized V cache needs it"
        for name in ("n_seq_max", "active_streams"):
            if not _is_count(settings.get(name, 1), workload.streams):
                return f"{name}={settings[name]}: allowed is 1 to {workload.streams}, the streams"
        if not _is_count(settings.get("prefill_chunk", 1), MOST_UBATCH):
            return f"prefill_chunk={settings['prefill_chunk']}: allowed is 1 to {MOST_UBATCH}"
        for name in ("repack", "mmap", "mlock", "swa_full", "kv_unified"):
            if not isinstance(settings.get(name, True), bool):
                return f"{name}={settings[name]}: allowed is true or false"
        problem = _numa_problem(settings)
        if problem is not None:
            return problem
        if "swa_full" in settings and not model.sliding_window:
            return "swa_full: allowed is to leave it out, the model has no sliding window"
        problem = lock_problem(self._file_bytes(config.variant, model)) if settings.get("mlock") else None
        if problem is not None:
            return problem
        if model.context_length and workload.context_tokens > model.context_length:
            return (
                f"prompt_tokens={workload.prompt_tokens} + output_tokens={workload.output_tokens} are"
                f" {workload.context_tokens} tokens, above the model's context of {model.context_length}"
            )
        return None

    def _file_bytes(self, variant: str, model: ModelInfo) -> int:
        sizes = {recipe.label: recipe.estimated_bytes for recipe in self.recipes(model)}
        return sizes.get(variant, model.file_bytes)

    def canonical(self, config: Config, model: ModelInfo, workload: Workload) -> Config:
        """An ubatch no larger than a batch can be; no repack choice where nothing can be repacked.

        Several streams that run together make batches of more than one token, which run on n_threads_batch.
        No more run than the cache has sequences; where one runs alone, nothing decodes beside a prompt.
        """
        settings = config.as_dict()
        changes: dict[str, Setting] = {}
        ubatch = settings.get("n_ubatch")
        if isinstance(ubatch, int):
            most = max(_largest_ubatch(workload), workload.prompt_tokens * workload.streams)
            changes["n_ubatch"] = min(ubatch, most)
        if variants.is_float(config.variant, model) and "repack" in settings:
            changes["repack"] = False
        sequences = settings.get("n_seq_max", workload.streams)
        active = min(int(settings.get("active_streams", sequences)), int(sequences))
        if active > 1 and "n_threads" in settings and "n_threads_batch" in settings:
            changes["n_threads"] = settings["n_threads_batch"]
        if "active_streams" in settings:
            changes["active_streams"] = active
        if "prefill_chunk" in settings:
            most = max(DEFAULT_UBATCH, int(changes.get("n_ubatch", DEFAULT_UBATCH)))
            changes["prefill_chunk"] = most if active == 1 else min(int(settings["prefill_chunk"]), most)
        if "kv_unified" in settings and sequences == 1:
            changes["kv_unified"] = False
        return config.with_settings(**changes)


def stream_counts(workload: Workload) -> tuple[int, ...]:
    """The powers of two below the streams, and all of them."""
    below = (2**power for power in range(workload.streams.bit_length()) if 2**power < workload.streams)
    return (*below, workload.streams)


def _all_streams_at_once(workload: Workload) -> dict[str, Setting]:
    return {
        "n_seq_max": workload.streams,
        "kv_unified": False,
        "active_streams": workload.streams,
        "prefill_chunk": DEFAULT_UBATCH,
    }


def _outgrows_window(model: ModelInfo, workload: Workload) -> bool:
    """Within the window, a cache of the window alone is the whole cache."""
    return bool(model.sliding_window) and workload.context_tokens > (model.sliding_window or 0)


def _has_nodes(machine: Machine) -> bool:
    """Whether this process may use CPUs of several NUMA nodes."""
    usable = set(machine.effective.cpus)
    return sum(not usable.isdisjoint(node.cpus) for node in machine.cpu_nodes) > 1


def _numa_problem(settings: Mapping[str, Setting]) -> str | None:
    strategy, placed = settings.get("numa", "off"), str(settings.get("placement", "none"))
    if strategy not in NUMA_STRATEGIES:
        return f"numa={strategy}: allowed is {', '.join(NUMA_STRATEGIES)}"
    if strategy in ("distribute", "isolate") and placed != "none":
        return f"numa={strategy} with placement={placed}: it places the threads itself, allowed is none"
    if strategy == "numactl" and not placed.startswith("node"):
        return f"numa=numactl with placement={placed}: it keeps to a node, allowed is node0 and the like"
    return None


def _is_count(value: Setting | None, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _largest_ubatch(workload: Workload) -> int:
    """The smallest size that takes all prompts at once, within the engine's default of 512."""
    tokens = workload.prompt_tokens * workload.streams
    return next((size for size in UBATCHES if size >= tokens), DEFAULT_UBATCH)


def _head_problem(name: str, kind: str, model: ModelInfo) -> str | None:
    length = model.key_length if name == "type_k" else model.value_length
    if kind == "f16" or length % KV_BLOCK == 0:
        return None
    return f"{name}={kind}: the model's head size {length} is not a multiple of {KV_BLOCK}; allowed is f16"
