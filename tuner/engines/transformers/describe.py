"""Describes Transformers on PyTorch: variants, dimensions, defaults, constraints."""

from __future__ import annotations

from collections.abc import Mapping

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner.engines.base import BOTH_PHASES, SOURCE, Dimension, Phase, Recipe, Scope
from tuner.engines.threads import thread_counts
from tuner.engines.transformers import variants

ATTENTIONS = ("eager", "sdpa")
MOST_BEAMS = 16
_PROBE = """
import json
from tuner.engines.transformers import smoke
print(json.dumps(smoke.run()))
"""


class Transformers:
    """Models of Transformers in PyTorch on the CPU, with their defaults as the default."""

    name = "transformers"
    formats = ("huggingface", "gguf")
    variant_labels = (SOURCE, *variants.LABELS)
    session = "tuner.engines.transformers.session:TransformersSession"
    scorer = "tuner.engines.transformers.scorer:TransformersScorer"
    has_openmp = True
    everyday: str | None = None

    def probe_code(self) -> str:
        """Imports both libraries and computes two tokens of a made-up model."""
        return _PROBE

    def refuses(self, model: ModelInfo) -> str | None:
        """Architectures that it does not run, and models that can't become a Hugging Face folder."""
        return variants.problem(model)

    def maker(self) -> str:
        """The module that writes the folders of bfloat16 and 8 bits."""
        return variants.MAKER

    def recipes(self, model: ModelInfo) -> tuple[Recipe, ...]:
        """The weights as given, computed in float32; then bfloat16 and 8 bits."""
        return variants.recipes(model)

    def reference(self, model: ModelInfo) -> Recipe:
        """float32."""
        return variants.exact(model)

    def dimensions(self, machine: Machine, model: ModelInfo, workload: Workload) -> tuple[Dimension, ...]:
        """Threads of each phase and the attention's code; three more at their defaults only."""
        threads = thread_counts(machine)
        default = self.default(machine, model, workload).as_dict()

        def dimension(
            name: str,
            values: tuple[Setting, ...],
            scope: Scope,
            role: Role,
            phases: frozenset[Phase] = BOTH_PHASES,
        ) -> Dimension:
            return Dimension(name, values, default[name], scope, role, phases)

        return (
            dimension("n_threads", threads, Scope.RUN, Role.THREADS, frozenset({Phase.DECODE})),
            dimension("n_threads_batch", threads, Scope.RUN, Role.THREADS, frozenset({Phase.PREFILL})),
            dimension("attention", ATTENTIONS, Scope.LOAD, Role.KV),
            # The first is of no use to one sequence, the others only cost: docs/engines.md.
            dimension("interop_threads", (default["interop_threads"],), Scope.PROCESS, Role.PLACEMENT),
            dimension("use_cache", (True,), Scope.CONTEXT, Role.KV),
            dimension("beams", (1,), Scope.CONTEXT, Role.BATCH),
        )

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """PyTorch's own: a thread for each physical core, and a pool of all CPUs for what never runs."""
        cores = machine.physical_cores or machine.effective.cpu_count
        return Config.of(
            self.name,
            variants.exact(model).label,
            {
                "n_threads": cores,
                "n_threads_batch": cores,
                "attention": "sdpa",
                "interop_threads": machine.logical_cpus or machine.effective.cpu_count,
                "use_cache": True,
                "beams": 1,
            },
        )

    def starts(
        self, machine: Machine, model: ModelInfo, workload: Workload
    ) -> tuple[Mapping[str, Setting], ...]:
        """All CPUs for the prompt; the cores, then all, for each token."""
        every = machine.effective.cpu_count
        cores = min(machine.physical_cores or every, every)
        common: dict[str, Setting] = {"n_threads_batch": every, "attention": "sdpa"}
        return tuple({**common, "n_threads": threads} for threads in dict.fromkeys((cores, every)))

    def violation(self, config: Config, machine: Machine, model: ModelInfo, workload: Workload) -> str | None:
        """The first reason; the default's own thread counts pass even above the effective CPUs."""
        settings = config.as_dict()
        default = self.default(machine, model, workload)
        limit = machine.effective.cpu_count_ceiling
        for name in ("n_threads", "n_threads_batch", "interop_threads"):
            value = settings.get(name, default.get(name))
            if value != default.get(name) and not _is_count(value, limit):
                return f"{name}={value}: allowed is 1 to {limit}, the effective CPUs"
        attention = settings.get("attention", "sdpa")
        if attention not in ATTENTIONS:
            return f"attention={attention}: allowed is {' or '.join(ATTENTIONS)}"
        if not isinstance(settings.get("use_cache", True), bool):
            return f"use_cache={settings['use_cache']}: allowed is true or false"
        beams = settings.get("beams", 1)
        if not _is_count(beams, MOST_BEAMS):
            return f"beams={beams}: allowed is 1 to {MOST_BEAMS}"
        if beams != 1 and workload.streams > 1:
            return f"beams={beams} with {workload.streams} streams: allowed is 1"
        if model.context_length and workload.context_tokens > model.context_length:
            return (
                f"prompt_tokens={workload.prompt_tokens} + output_tokens={workload.output_tokens} are"
                f" {workload.context_tokens} tokens, above the model's context of {model.context_length}"
            )
        return None

    def canonical(self, config: Config, model: ModelInfo, workload: Workload) -> Config:
        """With beams the library's own loop runs, with its cache, on the threads of the prompt."""
        del model, workload
        settings = config.as_dict()
        if settings.get("beams", 1) == 1:
            return config
        return config.with_settings(
            use_cache=True, n_threads=settings.get("n_threads_batch", settings.get("n_threads", 1))
        )


def _is_count(value: Setting | None, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
