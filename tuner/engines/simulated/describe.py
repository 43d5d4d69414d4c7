"""The description of the simulated engine, which behaves like a small llama.cpp and runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner.engines.base import SOURCE, Dimension, Phase, Recipe, Scope

UBATCHES = (16, 32, 64, 128, 256, 512)
KV_TYPES = ("f16", "q8_0", "q4_0")
VARIANTS = {"bf16": 16.0, "q8_0": 8.5, "q4_0": 4.5}
REFERENCE = "f16"

_PREFILL = frozenset({Phase.PREFILL})
_DECODE = frozenset({Phase.DECODE})


class Simulated:
    """Implements `tuner.engines.base.Engine`; used only where it is named."""

    name = "simulated"
    formats = ("gguf", "simulated")
    variant_labels = (SOURCE, *VARIANTS)
    session = "tuner.engines.simulated.session:SimulatedSession"
    scorer = "tuner.engines.simulated.scorer:SimulatedScorer"
    has_openmp = True
    everyday: str | None = None

    def probe_code(self) -> str:
        """Imports the session, which strikes the faults of importing."""
        return (
            "import json\n"
            "from tuner.engines.simulated import session\n"
            "print(json.dumps({'version': session.VERSION, 'build': session.BUILD}))\n"
        )

    def refuses(self, model: ModelInfo) -> str | None:
        """Never: it reads no weights."""
        del model
        return None

    def recipes(self, model: ModelInfo) -> tuple[Recipe, ...]:
        """The source, bf16, q8_0 and q4_0."""
        made = (_recipe(label, bits, model) for label, bits in VARIANTS.items())
        return (Recipe(SOURCE, estimated_bytes=model.file_bytes), *made)

    def reference(self, model: ModelInfo) -> Recipe:
        """f16, which has the true distribution."""
        return _recipe(REFERENCE, 16.0, model)

    def maker(self) -> str:
        """Writes a small file."""
        return "tuner.engines.simulated.make"

    def dimensions(self, machine: Machine, model: ModelInfo, workload: Workload) -> tuple[Dimension, ...]:
        """The settings of a small llama.cpp."""
        cpus = machine.effective.cpu_count
        threads = tuple(range(1, cpus + 1)) if cpus <= 8 else tuple(sorted({1, 2, 4, 8, cpus // 2, cpus}))
        default = self.default(machine, model, workload).as_dict()
        ubatches = tuple(size for size in UBATCHES if size <= _largest_ubatch(workload))

        def dimension(
            name: str,
            values: tuple[Setting, ...],
            scope: Scope,
            role: Role,
            *,
            phases: frozenset[Phase] = frozenset(Phase),
            affects_quality: bool = False,
        ) -> Dimension:
            return Dimension(name, values, default[name], scope, role, phases, affects_quality)

        return (
            dimension("n_threads", threads, Scope.RUN, Role.THREADS, phases=_DECODE),
            dimension("n_threads_batch", threads, Scope.RUN, Role.THREADS, phases=_PREFILL),
            dimension("n_ubatch", ubatches, Scope.CONTEXT, Role.BATCH, phases=_PREFILL),
            dimension("flash_attn", ("off", "on"), Scope.CONTEXT, Role.KV),
            dimension("type_k", KV_TYPES, Scope.CONTEXT, Role.KV, affects_quality=True),
            dimension("type_v", KV_TYPES, Scope.CONTEXT, Role.KV, affects_quality=True),
            dimension("repack", (False, True), Scope.LOAD, Role.WEIGHTS, phases=_PREFILL),
        )

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """Half of the CPUs decode, all prefill, no flash attention, an exact KV cache."""
        cpus = machine.effective.cpu_count
        return Config.of(
            self.name,
            SOURCE,
            {
                "n_threads": max(cpus // 2, 1),
                "n_threads_batch": cpus,
                "n_ubatch": _largest_ubatch(workload),
                "flash_attn": "off",
                "type_k": "f16",
                "type_v": "f16",
                "repack": True,
            },
        )

    def starts(
        self, machine: Machine, model: ModelInfo, workload: Workload
    ) -> tuple[Mapping[str, Setting], ...]:
        """All CPUs to prefill; all, or half of them, to decode."""
        cpus = machine.effective.cpu_count
        default = self.default(machine, model, workload).as_dict()
        return tuple({**default, "n_threads": count} for count in dict.fromkeys((cpus, max(cpus // 2, 1))))

    def violation(self, config: Config, machine: Machine, model: ModelInfo, workload: Workload) -> str | None:
        """The first reason."""
        settings = config.as_dict()
        cpus = machine.effective.cpu_count
        for name in ("n_threads", "n_threads_batch"):
            threads = settings.get(name, 1)
            if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= cpus:
                return f"{name}={threads}: allowed is 1 to {cpus}, the effective CPUs"
        ubatch = settings.get("n_ubatch", UBATCHES[-1])
        if isinstance(ubatch, bool) or not isinstance(ubatch, int) or not 1 <= ubatch <= UBATCHES[-1]:
            return f"n_ubatch={ubatch}: allowed is 1 to {UBATCHES[-1]}"
        for name, allowed in (("flash_attn", ("off", "on")), ("type_k", KV_TYPES), ("type_v", KV_TYPES)):
            if settings.get(name, allowed[0]) not in allowed:
                return f"{name}={settings[name]}: allowed is {', '.join(allowed)}"
        kind = settings.get("type_v", "f16")
        if kind != "f16" and settings.get("flash_attn", "off") == "off":
            return f"type_v={kind} needs flash_attn=on: a quantized V cache needs it"
        return None

    def canonical(self, config: Config, model: ModelInfo, workload: Workload) -> Config:
        """No ubatch above the prompts, no choice of repack where nothing can be repacked."""
        changes: dict[str, Setting] = {}
        ubatch = config.get("n_ubatch")
        if isinstance(ubatch, int):
            changes["n_ubatch"] = min(ubatch, _largest_ubatch(workload))
        if config.get("repack") is not None and config.variant != "q4_0":
            changes["repack"] = True
        batch = config.get("n_threads_batch")
        if workload.streams > 1 and batch is not None and config.get("n_threads") is not None:
            changes["n_threads"] = batch
        return config.with_settings(**changes)


def _recipe(label: str, bits: float, model: ModelInfo) -> Recipe:
    return Recipe(label, (("variant", label),), int(model.parameter_count * bits / 8), "simulated")


def _largest_ubatch(workload: Workload) -> int:
    tokens = workload.prompt_tokens * workload.streams
    return next((size for size in UBATCHES if size >= tokens), UBATCHES[-1])
