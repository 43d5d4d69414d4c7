"""Describes llama.cpp through llama-cpp-python: variants, dimensions, defaults, constraints."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Setting, Workload
from tuner.engines.base import BOTH_PHASES, SOURCE, Dimension, Phase, Recipe, Role, Scope
from tuner.engines.llama_cpp.locking import lock_problem

UBATCHES = (16, 32, 64, 128, 256, 512)
DEFAULT_UBATCH = 512
MOST_UBATCH = 8192
"""What a user's own command may ask for; searches end at the default."""

KV_TYPES = ("q4_0", "q8_0", "f16")
KV_BLOCK = 32
"""A quantized KV cache holds blocks of 32 values, so a head's size must be a multiple."""

FLOAT_TYPES = frozenset({"f16", "bf16", "f32"})
RECIPES = ("f16", "bf16", "q8_0", "q6_k", "q4_k_m", "q4_0")
_MAIN_TYPE = {"q4_k_m": "q4_k"}
_BITS = {"f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q6_k": 6.5625, "q4_k_m": 4.85, "q4_0": 4.5}
_BITS_SHORT_ROWS = {**_BITS, "q6_k": 8.5, "q4_k_m": 6.4}
"""Bits per weight where rows aren't multiples of 256 and k-quants fall back to blocks of 32."""

_PROBE = """
import json
from tuner.engines.llama_cpp import smoke
print(json.dumps(smoke.run()))
"""


class LlamaCpp:
    """llama.cpp's low-level API, with llama-cpp-python's defaults as the default."""

    name = "llama_cpp"
    formats = ("gguf",)
    variant_labels = (SOURCE, *RECIPES)
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

    def recipes(self, model: ModelInfo) -> tuple[Recipe, ...]:
        """The source, then every other type from the most to the least exact."""
        source = Recipe(SOURCE, estimated_bytes=model.file_bytes)
        made = (
            Recipe(label, (("file_type", label),), _estimated_bytes(model, label))
            for label in RECIPES
            if not _is_of_type(model, label)
        )
        return source, *made

    def reference(self, model: ModelInfo) -> Recipe:
        """f16, or the file itself where its weights are not quantized."""
        if main_type(model) in FLOAT_TYPES:
            return Recipe(SOURCE, estimated_bytes=model.file_bytes)
        return Recipe("f16", (("file_type", "f16"),), _estimated_bytes(model, "f16"))

    def dimensions(self, machine: Machine, model: ModelInfo, workload: Workload) -> tuple[Dimension, ...]:
        """Threads, batch, attention, KV types and repacking; mapping and locking, which are policy, at their
        defaults only, and the window's cache where the workload outgrows a sliding window."""
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
            dimension("repack", (False, True), Scope.LOAD, Role.WEIGHTS),
            dimension("mmap", (True,), Scope.LOAD, Role.WEIGHTS),
            dimension("mlock", (False,), Scope.LOAD, Role.WEIGHTS),
        )

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """llama-cpp-python's own: half of the machine-wide logical CPUs decode, all of them prefill.

        It looks neither at affinity nor at a quota, and that is kept: the baseline is what a user gets.
        """
        logical = machine.logical_cpus or machine.effective.cpu_count
        return Config.of(
            self.name,
            SOURCE,
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
                **({"swa_full": True} if _outgrows_window(model, workload) else {}),
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
        for name in ("repack", "mmap", "mlock", "swa_full"):
            if not isinstance(settings.get(name, True), bool):
                return f"{name}={settings[name]}: allowed is true or false"
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

        With several streams every batch has more than one token, and those run on n_threads_batch.
        """
        settings = config.as_dict()
        changes: dict[str, Setting] = {}
        ubatch = settings.get("n_ubatch")
        if isinstance(ubatch, int):
            most = max(_largest_ubatch(workload), workload.prompt_tokens * workload.streams)
            changes["n_ubatch"] = min(ubatch, most)
        kind = main_type(model) if config.variant == SOURCE else config.variant
        if kind in FLOAT_TYPES and "repack" in settings:
            changes["repack"] = False
        if workload.streams > 1 and "n_threads" in settings and "n_threads_batch" in settings:
            changes["n_threads"] = settings["n_threads_batch"]
        return config.with_settings(**changes)


def _outgrows_window(model: ModelInfo, workload: Workload) -> bool:
    """Within the window, a cache of the window alone is the whole cache."""
    return bool(model.sliding_window) and workload.context_tokens > (model.sliding_window or 0)


def thread_counts(machine: Machine) -> tuple[int, ...]:
    """Thread counts worth trying: all of them up to 8 effective CPUs, else a ladder.

    The ladder grows by about a half a step, and has the physical cores, the fast cores and all CPUs.
    """
    every = machine.effective.cpu_count_ceiling
    if every <= 8:
        return tuple(range(1, every + 1))
    counts = {1, 2, 3, 4, 6, 8, every // 2, every}
    step = 8
    while step < every:
        counts |= {step, step * 3 // 2}
        step *= 2
    counts |= {machine.physical_cores or every}
    if len(machine.core_kinds) > 1:
        counts |= {kind.physical_cores or len(kind.cpus) for kind in machine.core_kinds}
        counts |= {len(kind.cpus) for kind in machine.core_kinds}
    return tuple(sorted(count for count in counts if 1 <= count <= every))


def _is_of_type(model: ModelInfo, label: str) -> bool:
    """Whether a recipe would only make again what the file is already.

    Files of fewer bits keep their embedding in q8_0, in small models most of their bytes: such are not q8_0.
    """
    if _MAIN_TYPE.get(label, label) != main_type(model):
        return False
    mix = dict(model.tensor_mix)
    return label != "q8_0" or mix["q8_0"] >= 0.9 * sum(mix.values())


def main_type(model: ModelInfo) -> str:
    """The tensor type that holds most of a model's bytes."""
    return max(model.tensor_mix, key=lambda pair: pair[1])[0]


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


def _estimated_bytes(model: ModelInfo, label: str) -> int:
    """The size of a made variant: vectors stay f32, the embedding keeps 6 bits or more."""
    mix = dict(model.tensor_mix)
    vectors = mix.get("f32", 0) if main_type(model) != "f32" else 0
    bits = (_BITS_SHORT_ROWS if model.hidden_size % 256 else _BITS)[label]
    embedding = min(model.vocabulary_size * model.hidden_size, model.parameter_count)
    body = model.parameter_count - embedding
    embedding_bits = max(bits, 8.5 if model.hidden_size % 256 else 6.5625)
    metadata = max(model.file_bytes - sum(mix.values()), 0)
    return ceil((body * bits + embedding * embedding_bits) / 8) + vectors + metadata
