"""Made-up landscapes with the noise of real ones, for developing a search where nothing is recorded yet."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import combinations

from probes.effective import Effective
from probes.machine import Machine
from probes.topology import Topology
from profiles.vocabulary import WORKLOADS, Config, ModelInfo, Quality, Role, Setting, Workload
from tests.benchmarks.landscape import Landscape
from tests.support.surface import LOSSLESS, RUINED, FakeClock, SurfaceRunner, space_of
from tuner import engines as registry
from tuner.engines.base import Dimension, Phase
from tuner.measurement import placement
from tuner.search.space import EngineSpace, Space

ROUNDS = 12
NOISE = 0.015
OUTLIERS = 0.06
"""The share of rounds that something disturbed unseen, by a third on average."""
MODEL = ModelInfo(
    name="made-up", digest="00", format="gguf", architecture="llama", parameter_count=135_000_000,
    layer_count=30, hidden_size=576, head_count=9, kv_head_count=3, key_length=64, value_length=64,
    vocabulary_size=49152, context_length=8192, file_bytes=98_000_000, tensor_mix=(("q4_1", 98_000_000),),
    bits_per_weight=5.7,
)  # fmt: skip


def machine_of(cpus: int) -> Machine:
    return Machine(
        fingerprint=f"made-up-{cpus}",
        topology=Topology(online=tuple(range(cpus)), physical_cores=max(cpus // 2, 1), logical_cpus=cpus),
        effective=Effective(cpus=tuple(range(cpus)), cpu_count=cpus),
    )


def simulated(cpus: int, *, seed: int = 0, noise: float = NOISE) -> Landscape:
    """The simulated engine's response surface."""
    space = space_of(machine_of(cpus), WORKLOADS["chat"])
    truth = SurfaceRunner(space, FakeClock())
    land = Landscape(space)
    rng = random.Random(seed)
    for phase, wanted in land.wanted().items():
        for config in wanted:
            ms = truth.true_ms(config)[0 if phase is Phase.PREFILL else 1]
            land.add(config, phase, _noisy(ms, noise, rng))
    return _judged(land, {"q4_0"})


def llama_space(cpus: int, workload: Workload = WORKLOADS["chat"]) -> Space:
    """llama.cpp's space on a made-up machine; nothing of it is run."""
    engine = registry.get("llama_cpp")
    machine = machine_of(cpus)
    labels = tuple(recipe.label for recipe in engine.recipes(MODEL))
    dimensions = (*engine.dimensions(machine, MODEL, workload), *placement.dimensions(engine))
    return Space(machine, MODEL, workload, (EngineSpace(engine, labels, dimensions),))


def additive(
    cpus: int, *, seed: int, noise: float = NOISE, workload: Workload = WORKLOADS["chat"]
) -> Landscape:
    """llama.cpp's space under random effects that add up on log time, with pairs that interact.

    Threads help up to a random number of them; beyond it they harm. Every pair of settings (the variant is
    one) has a small random effect for each combination of values, some pairs a large one.
    """
    space = llama_space(cpus, workload)
    land = Landscape(space)
    for phase, wanted in land.wanted().items():
        surface = _Surface(space, space.engines[0], phase, random.Random(f"{seed}/{phase}"))
        rng = random.Random(f"{seed}/{phase}/noise")
        base_ms = 120.0 if phase is Phase.PREFILL else 6.0
        for config in wanted:
            ms = base_ms * math.exp(surface.log_ms(space.phase_part(config, phase)))
            land.add(config, phase, _noisy(ms, noise, rng))
    rng = random.Random(f"{seed}/quality")
    labels = space.engines[0].variants
    return _judged(land, {label for label in labels if label != "source" and rng.random() < 0.4})


@dataclass(frozen=True)
class _Traits:
    """What a made-up engine is like: its fastest phases in milliseconds, over the variants that keep the
    quality level, and the seconds of a start."""

    variants: tuple[str, ...]
    fastest_ms: Mapping[Phase, float]
    start_s: float


TRAITS: Mapping[str, _Traits] = {
    "llama_cpp": _Traits(("source", "q8_0", "q4_0"), {Phase.PREFILL: 70.0, Phase.DECODE: 4.0}, 0.9),
    "onnxruntime": _Traits(("fp32", "int8", "int4_b32"), {Phase.PREFILL: 90.0, Phase.DECODE: 3.2}, 2.5),
    "transformers": _Traits(("f32", "bf16"), {Phase.PREFILL: 600.0, Phase.DECODE: 40.0}, 5.0),
}
RUINED_VARIANTS = frozenset({"q4_0", "int4_b32"})
_FEW: Mapping[str, tuple[Setting, ...]] = {"n_ubatch": (32, 128), "type_k": ("f16",), "type_v": ("f16",)}


def engines(cpus: int, *, seed: int, noise: float = NOISE) -> Landscape:
    """Three engines: llama.cpp; ONNX Runtime, which is faster at its best but starts slowly, and whose
    default is slow; PyTorch, hopeless at any setting."""
    workload = WORKLOADS["chat"]
    machine = machine_of(cpus)
    made = [(registry.get(name), traits) for name, traits in TRAITS.items()]
    space = Space(
        machine,
        MODEL,
        workload,
        tuple(
            EngineSpace(engine, traits.variants, tuple(_trimmed(engine.dimensions(machine, MODEL, workload))))
            for engine, traits in made
        ),
    )
    land = Landscape(space)
    for part, (_, traits) in zip(space.engines, made, strict=True):
        _measured(land, part, traits, seed, noise)
        for variant in traits.variants:
            seconds = {"process": traits.start_s, "load": traits.start_s, "context": 0.05, "run": 0.01}
            land.overhead_s[f"{part.engine.name}/{variant}"] = {name: [s] for name, s in seconds.items()}
    return _judged(land, RUINED_VARIANTS)


def _trimmed(dimensions: Iterable[Dimension]) -> Iterator[Dimension]:
    for dimension in dimensions:
        yield replace(dimension, values=_FEW.get(dimension.name, dimension.values))


def _measured(land: Landscape, part: EngineSpace, traits: _Traits, seed: int, noise: float) -> None:
    """Give an engine its rounds."""
    name = part.engine.name
    for phase, wanted in land.wanted().items():
        surface = _Surface(land.space, part, phase, random.Random(f"{seed}/{name}/{phase}"))
        rng = random.Random(f"{seed}/{name}/{phase}/noise")
        logs = {c: surface.log_ms(land.space.phase_part(c, phase)) for c in wanted if c.engine == name}
        least = min(log for config, log in logs.items() if config.variant not in RUINED_VARIANTS)
        for config, log in logs.items():
            land.add(config, phase, _noisy(traits.fastest_ms[phase] * math.exp(log - least), noise, rng))


class _Surface:
    """A random log time, memoized value by value."""

    def __init__(self, space: Space, part: EngineSpace, phase: Phase, rng: random.Random) -> None:
        self._rng = rng
        cpus = space.machine.effective.cpu_count
        self._knee = rng.choice([max(cpus // 2, 1), max(3 * cpus // 4, 1), cpus])
        self._gain = rng.uniform(0.3, 0.9)
        self._threads = {d.name for d in part.dimensions if d.role is Role.THREADS}
        names = ["variant", *(d.name for d in part.dimensions if phase in d.phases)]
        self._strength = {pair: rng.choice([0.0, 0.01, 0.01, 0.05]) for pair in combinations(names, 2)}
        self._effects: dict[tuple[object, ...], float] = {}

    def log_ms(self, config: Config) -> float:
        settings: dict[str, Setting] = {"variant": config.variant, **config.as_dict()}
        total = 0.0
        for name, value in settings.items():
            if name in self._threads:
                total += self._threads_log(int(value))
            else:
                total += self._effect(0.2 if name == "variant" else 0.08, name, value)
        for pair, strength in self._strength.items():
            total += self._effect(strength, pair, tuple(settings[name] for name in pair))
        return total

    def _threads_log(self, threads: int) -> float:
        useful = min(threads, self._knee)
        return -self._gain * math.log(useful) + 0.15 * math.log(threads / useful)

    def _effect(self, strength: float, *what: object) -> float:
        if what not in self._effects:
            self._effects[what] = self._rng.gauss(0, 1)
        return strength * self._effects[what]


def _noisy(ms: float, noise: float, rng: random.Random) -> list[float]:
    rounds = []
    for _ in range(ROUNDS):
        disturbed = 1 + rng.expovariate(3.0) if rng.random() < OUTLIERS else 1.0
        rounds.append(ms * disturbed * rng.lognormvariate(0, noise))
    return rounds


def _judged(land: Landscape, ruined: Set[str]) -> Landscape:
    space = land.space
    for config in land.wanted()[Phase.DECODE]:
        key = space.quality_key(config)
        coarse = "q4_0" in (key.get("type_k"), key.get("type_v"))
        found: Quality = RUINED if config.variant in ruined or coarse else LOSSLESS
        land.quality.setdefault(key, found)
    return land
