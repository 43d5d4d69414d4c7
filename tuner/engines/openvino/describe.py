"""Describes OpenVINO: variants, dimensions, defaults, constraints."""

from __future__ import annotations

from collections.abc import Mapping

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner.engines.base import Dimension, Recipe, Scope
from tuner.engines.openvino import variants
from tuner.engines.threads import thread_counts

BACKENDS = ("sdpa", "paged")
KV_PRECISIONS = ("u8", "bf16", "f16", "f32")
KV_UNDER = {"bf16": ("u8", "bf16"), "f32": ("u8", "f16", "f32")}
"""Which KV caches the operators take under a precision hint; under bf16 an f16 one is held as bf16."""

QUANTIZATION_GROUPS = (0, 32, 128)
"""Activations to a scale where weights are integers; 0 leaves activations as they are."""

PREFILL_CHUNKS = (64, 256, 1024)
DEFAULT_CHUNK = 256
"""The continuous batching pipeline's own."""
MOST_CHUNK = 8192

CORE_TYPES = ("ANY_CORE", "PCORE_ONLY", "ECORE_ONLY")

_PROBE = """
import json
from tuner.engines.openvino import packages
packages.check()
from tuner.engines.openvino import smoke
print(json.dumps(smoke.run()))
"""


class OpenVino:
    """OpenVINO's CPU plugin, with the defaults of OpenVINO GenAI's `LLMPipeline` as the default."""

    name = "openvino"
    formats = ("openvino", "huggingface", "gguf")
    variant_labels = variants.LABELS
    session = "tuner.engines.openvino.session:OpenVinoSession"
    scorer = "tuner.engines.openvino.scorer:OpenVinoScorer"
    has_openmp = False
    everyday: str | None = None

    def probe_code(self) -> str:
        """Compares the packages' releases, then runs a made-up model on both backends."""
        return _PROBE

    def maker(self) -> str:
        """The module that converts and compresses."""
        return "tuner.engines.openvino.recipes"

    def refuses(self, model: ModelInfo) -> str | None:
        """An architecture that its GGUF reader does not know, or a model without a tokenizer."""
        return variants.refuses(model)

    def recipes(self, model: ModelInfo) -> tuple[Recipe, ...]:
        """The weights as given where they can be held exactly, f16, then int8 and int4."""
        return variants.recipes(model)

    def reference(self, model: ModelInfo) -> Recipe:
        """f16, or the weights as given where they are floats."""
        return variants.reference(model)

    def dimensions(self, machine: Machine, model: ModelInfo, workload: Workload) -> tuple[Dimension, ...]:
        """The operator of attention, threads and where they run, precisions; for several streams also how
        many run at once, and how prompts enter. All but the last two are fixed when the model is compiled."""
        default = self.default(machine, model, workload).as_dict()

        def dimension(
            name: str,
            values: tuple[Setting, ...],
            role: Role,
            scope: Scope = Scope.LOAD,
            affects_quality: bool = False,
        ) -> Dimension:
            return Dimension(name, values, default[name], scope, role, affects_quality=affects_quality)

        hints = ("bf16", "f32") if has_bf16(machine) else ("f32",)
        precisions = tuple(kv for kv in KV_PRECISIONS if any(kv in KV_UNDER[hint] for hint in hints))
        return (
            dimension("attention_backend", BACKENDS, Role.KV, affects_quality=True),
            dimension("inference_num_threads", thread_counts(machine), Role.THREADS),
            dimension("enable_cpu_pinning", (False, True), Role.PLACEMENT),
            *(
                (dimension("enable_hyper_threading", (False, True), Role.PLACEMENT),)
                if _has_smt(machine)
                else ()
            ),
            *(
                (dimension("scheduling_core_type", CORE_TYPES, Role.PLACEMENT),)
                if len(machine.core_kinds) > 1
                else ()
            ),
            dimension("inference_precision_hint", hints, Role.WEIGHTS, affects_quality=True),
            dimension("kv_cache_precision", precisions, Role.KV, affects_quality=True),
            dimension(
                "dynamic_quantization_group_size", QUANTIZATION_GROUPS, Role.WEIGHTS, affects_quality=True
            ),
            *(
                (
                    dimension("active_streams", _stream_counts(workload), Role.BATCH, Scope.CONTEXT),
                    dimension("prefill_chunk", PREFILL_CHUNKS, Role.BATCH, Scope.RUN),
                )
                if workload.streams > 1
                else ()
            ),
        )

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """What `LLMPipeline` takes by itself: paged attention, a thread for each core, pinned, bf16 where
        the CPU has it, an 8-bit KV cache (f16 for float weights), activations in groups of 32."""
        first = self.recipes(model)[0].label
        cores = max(min(machine.physical_cores or 1 << 20, machine.effective.cpu_count), 1)
        hint = "f32" if not has_bf16(machine) or _crashes(machine, model, first, cores, "bf16") else "bf16"
        wide = "bf16" if hint == "bf16" else "f16"
        return Config.of(
            self.name,
            first,
            {
                "attention_backend": "paged",
                "inference_num_threads": cores,
                "enable_cpu_pinning": True,
                **({"enable_hyper_threading": False} if _has_smt(machine) else {}),
                **({"scheduling_core_type": "ANY_CORE"} if len(machine.core_kinds) > 1 else {}),
                "inference_precision_hint": hint,
                "kv_cache_precision": wide if variants.is_float(first, model) else "u8",
                "dynamic_quantization_group_size": 32,
                **(
                    {"active_streams": workload.streams, "prefill_chunk": DEFAULT_CHUNK}
                    if workload.streams > 1
                    else {}
                ),
            },
        )

    def starts(
        self, machine: Machine, model: ModelInfo, workload: Workload
    ) -> tuple[Mapping[str, Setting], ...]:
        """Both operators on all cores; the exact types; threads that may move, for a machine with others."""
        default = self.default(machine, model, workload).as_dict()
        threads = {"inference_num_threads": default["inference_num_threads"]}
        hint = str(default["inference_precision_hint"])
        exact: dict[str, Setting] = {
            "inference_precision_hint": hint,
            "kv_cache_precision": KV_UNDER[hint][1],
            "dynamic_quantization_group_size": 0,
        }
        return (
            {**threads, "attention_backend": "sdpa"},
            {**threads, "attention_backend": "paged", **exact},
            {**threads, "attention_backend": "paged", "enable_cpu_pinning": False},
        )

    def violation(self, config: Config, machine: Machine, model: ModelInfo, workload: Workload) -> str | None:
        """The first reason; the default's own thread count passes even above the effective CPUs."""
        settings = {**self.default(machine, model, workload).as_dict(), **config.as_dict()}
        described = {d.name: d for d in self.dimensions(machine, model, workload)}
        for name, dimension in described.items():
            value = settings[name]
            allowed = dimension.values
            counts = name in ("inference_num_threads", "active_streams", "prefill_chunk")
            if not counts and value not in (*allowed, dimension.default):
                return f"{name}={value}: allowed is {', '.join(map(str, allowed))}"
        problem = _count_problem(settings, described, machine, workload)
        if problem is not None:
            return problem
        hint, kv = str(settings["inference_precision_hint"]), settings["kv_cache_precision"]
        if _crashes(machine, model, config.variant, settings["inference_num_threads"], hint):
            return (
                "inference_num_threads=1 under inference_precision_hint=bf16 ends OpenVINO with SIGFPE"
                f" on a CPU with AMX where weights are floats ({config.variant}): allowed is f32 or 2 threads"
            )
        if kv not in KV_UNDER[hint]:
            return (
                f"kv_cache_precision={kv} under inference_precision_hint={hint}:"
                f" allowed is {', '.join(KV_UNDER[hint])}"
            )
        if model.context_length and workload.context_tokens > model.context_length:
            return (
                f"prompt_tokens={workload.prompt_tokens} + output_tokens={workload.output_tokens} are"
                f" {workload.context_tokens} tokens, above the model's context of {model.context_length}"
            )
        return None

    def canonical(self, config: Config, model: ModelInfo, workload: Workload) -> Config:
        """No dynamic quantization beside float weights; sequences one by one without paged attention, and
        prompts whole where one runs alone."""
        settings = config.as_dict()
        changes: dict[str, Setting] = {}
        if "dynamic_quantization_group_size" in settings and variants.is_float(config.variant, model):
            changes["dynamic_quantization_group_size"] = 0
        if "active_streams" in settings:
            if settings.get("attention_backend") == "sdpa":
                changes["active_streams"] = 1
            if "prefill_chunk" in settings and {**settings, **changes}["active_streams"] == 1:
                changes["prefill_chunk"] = PREFILL_CHUNKS[-1]
        return config.with_settings(**changes)


def has_bf16(machine: Machine) -> bool:
    """Whether the CPU computes in bf16, which OpenVINO then does unless told otherwise."""
    return bool({"avx512_bf16", "amx_bf16", "avx_ne_convert"} & set(machine.features))


def _crashes(machine: Machine, model: ModelInfo, variant: str, threads: Setting, hint: str) -> bool:
    """Whether OpenVINO 2026.4 dies while it compiles; test_ov_process.py tells when it no longer does."""
    return (
        threads == 1
        and hint == "bf16"
        and "amx_bf16" in machine.features
        and variants.is_float(variant, model)
    )


def _has_smt(machine: Machine) -> bool:
    return (machine.threads_per_core or 1) > 1


def _stream_counts(workload: Workload) -> tuple[int, ...]:
    """The powers of two below the streams, and all of them."""
    below = (2**power for power in range(workload.streams.bit_length()) if 2**power < workload.streams)
    return (*below, workload.streams)


def _count_problem(
    settings: Mapping[str, Setting], described: Mapping[str, Dimension], machine: Machine, workload: Workload
) -> str | None:
    name = "inference_num_threads"
    limits = {name: machine.effective.cpu_count_ceiling}
    cores = machine.physical_cores
    alone = settings.get("enable_hyper_threading") is False
    if cores and alone:
        limits[name] = min(limits[name], cores)
    if workload.streams > 1:
        limits |= {"active_streams": workload.streams, "prefill_chunk": MOST_CHUNK}
    for name, limit in limits.items():
        value = settings[name]
        if value == described[name].default:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
            why = ", one a core without enable_hyper_threading" if name.endswith("threads") and alone else ""
            return f"{name}={value}: allowed is 1 to {limit}{why}"
    return None
