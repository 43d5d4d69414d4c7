"""Describes ONNX Runtime through onnxruntime-genai: variants, dimensions, defaults, constraints."""

from __future__ import annotations

from collections.abc import Mapping

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner.engines.base import BOTH_PHASES, SOURCE, Dimension, Phase, Recipe, Scope
from tuner.engines.onnxruntime import variants
from tuner.engines.threads import thread_counts

GRAPH_LEVELS = ("disabled", "basic", "extended", "all")
SEARCHED_LEVELS = GRAPH_LEVELS[1:]
"""Without any optimization 8-bit graphs run in pieces that are slower whatever the rest."""

SPINNING = ("off", "short", "on")
CHUNKS = (128, 512, 2048, 8192)
MOST_CHUNK = 1 << 20
MOST_DEFAULT_THREADS = 16
"""onnxruntime-genai's own: half of the logical CPUs, at most this many."""

_PROBE = """
import json
from tuner.engines.onnxruntime import smoke
print(json.dumps(smoke.run()))
"""


class OnnxRuntime:
    """onnxruntime-genai on the CPU, with its defaults as the default."""

    name = "onnxruntime"
    formats = ("onnx", "huggingface", "gguf")
    variant_labels = (SOURCE, *variants.LABELS)
    session = "tuner.engines.onnxruntime.session:OnnxSession"
    scorer = "tuner.engines.onnxruntime.scorer:OnnxScorer"
    has_openmp = False
    everyday: str | None = None

    def probe_code(self) -> str:
        """Imports the bindings and generates two tokens with a made-up model."""
        return _PROBE

    def refuses(self, model: ModelInfo) -> str | None:
        """Architectures that onnxruntime-genai's builder has no graph for, and models that can't become a
        Hugging Face folder first."""
        return variants.problem(model)

    def maker(self) -> str:
        """The module that runs onnxruntime-genai's builder."""
        return variants.BUILDER

    def recipes(self, model: ModelInfo) -> tuple[Recipe, ...]:
        """A folder as given; else what can be made, from the most to the least exact."""
        return variants.recipes(model)

    def reference(self, model: ModelInfo) -> Recipe:
        """fp32, or the folder itself."""
        return variants.recipes(model)[0]

    def dimensions(self, machine: Machine, model: ModelInfo, workload: Workload) -> tuple[Dimension, ...]:
        """Threads, how idle ones wait, how far the graph is optimized, and in what parts a prompt is read."""
        default = self.default(machine, model, workload).as_dict()

        def dimension(
            name: str,
            values: tuple[Setting, ...],
            scope: Scope,
            role: Role,
            phases: frozenset[Phase] = BOTH_PHASES,
        ) -> Dimension:
            return Dimension(name, values, default[name], scope, role, phases)

        chunks = tuple(size for size in CHUNKS if size < workload.prompt_tokens)
        return (
            dimension("intra_op_num_threads", thread_counts(machine), Scope.LOAD, Role.THREADS),
            dimension("spinning", SPINNING, Scope.LOAD, Role.PLACEMENT),
            dimension("graph_optimization_level", SEARCHED_LEVELS, Scope.LOAD, Role.WEIGHTS),
            dimension(
                "prefill_chunk",
                (*chunks, int(default["prefill_chunk"])),
                Scope.RUN,
                Role.BATCH,
                frozenset({Phase.PREFILL}) if workload.streams == 1 else BOTH_PHASES,
            ),
        )

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """onnxruntime-genai's own: half of the machine-wide logical CPUs, and the prompt at once.

        Like llama.cpp it looks neither at affinity nor at a quota, and that is kept.
        """
        cpus = machine.logical_cpus or machine.effective.cpu_count
        return Config.of(
            self.name,
            variants.recipes(model)[0].label,
            {
                "intra_op_num_threads": min(max(cpus // 2, 1), MOST_DEFAULT_THREADS),
                "spinning": "on",
                "graph_optimization_level": "all",
                "prefill_chunk": _whole_prompt(workload),
            },
        )

    def starts(
        self, machine: Machine, model: ModelInfo, workload: Workload
    ) -> tuple[Mapping[str, Setting], ...]:
        """As many threads as cores, as CPUs, and half as many as cores; each waits by spinning."""
        every = machine.effective.cpu_count
        cores = min(machine.physical_cores or every, every)
        common: dict[str, Setting] = {
            "spinning": "on",
            "graph_optimization_level": "all",
            "prefill_chunk": _whole_prompt(workload),
        }
        counts = dict.fromkeys((cores, every, max(cores // 2, 1)))
        return tuple({**common, "intra_op_num_threads": count} for count in counts)

    def violation(self, config: Config, machine: Machine, model: ModelInfo, workload: Workload) -> str | None:
        """The first reason; the default's own thread count passes even above the effective CPUs."""
        settings = config.as_dict()
        default = self.default(machine, model, workload)
        limit = machine.effective.cpu_count_ceiling
        threads = settings.get("intra_op_num_threads", default.get("intra_op_num_threads"))
        if threads != default.get("intra_op_num_threads") and not _is_count(threads, limit):
            return f"intra_op_num_threads={threads}: allowed is 1 to {limit}, the effective CPUs"
        for name, allowed in (("spinning", SPINNING), ("graph_optimization_level", GRAPH_LEVELS)):
            if settings.get(name, allowed[-1]) not in allowed:
                return f"{name}={settings[name]}: allowed is {', '.join(allowed)}"
        chunk = settings.get("prefill_chunk", CHUNKS[0])
        if not _is_count(chunk, MOST_CHUNK):
            return f"prefill_chunk={chunk}: allowed is 1 to {MOST_CHUNK}"
        if model.context_length and workload.context_tokens > model.context_length:
            return (
                f"prompt_tokens={workload.prompt_tokens} + output_tokens={workload.output_tokens} are"
                f" {workload.context_tokens} tokens, above the model's context of {model.context_length}"
            )
        return None

    def canonical(self, config: Config, model: ModelInfo, workload: Workload) -> Config:
        """No prompt is read in parts larger than itself; one thread waits for nobody."""
        changes: dict[str, Setting] = {}
        chunk = config.get("prefill_chunk")
        if isinstance(chunk, int) and chunk >= workload.prompt_tokens:
            changes["prefill_chunk"] = _whole_prompt(workload)
        if config.get("intra_op_num_threads") == 1 and config.get("spinning") is not None:
            changes["spinning"] = "on"
        return config.with_settings(**changes)


def _whole_prompt(workload: Workload) -> int:
    """The smallest size that takes a whole prompt."""
    return next((size for size in CHUNKS if size >= workload.prompt_tokens), MOST_CHUNK)


def _is_count(value: Setting | None, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
