"""A runner without processes: the simulated engine's response surface, with seeded noise and a fake clock."""

from __future__ import annotations

import random
from collections.abc import Callable

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Quality, RoundSamples, Workload
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.engines.simulated import surface
from tuner.engines.simulated.describe import Simulated
from tuner.measurement import placement
from tuner.measurement.asked import Kind
from tuner.measurement.measurement import Measurement
from tuner.search.space import EngineSpace, Space

MODEL = ModelInfo(
    name="tiny", digest="00", format="simulated", architecture="simulated", parameter_count=1000,
    layer_count=1, hidden_size=8, head_count=1, kv_head_count=1, key_length=64, value_length=64,
    vocabulary_size=1024, context_length=8192, file_bytes=1000, tensor_mix=(("q4_1", 1000),),
    bits_per_weight=5.0,
)  # fmt: skip
LOSSLESS = Quality(0.001, 0.002, 0.99, 0.985, 1.0, 768)
RUINED = Quality(0.3, 0.4, 0.7, 0.65, 1.2, 768)


def space_of(machine: Machine, workload: Workload, variants: tuple[str, ...] | None = None) -> Space:
    engine = Simulated()
    labels = variants or tuple(recipe.label for recipe in engine.recipes(MODEL))
    dimensions = (*engine.dimensions(machine, MODEL, workload), *placement.dimensions(engine))
    return Space(machine, MODEL, workload, (EngineSpace(engine, labels, dimensions),))


class FakeClock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class SurfaceRunner:
    """Measures by formula; `fault` may raise for a configuration before anything is measured."""

    def __init__(
        self,
        space: Space,
        clock: FakeClock,
        *,
        noise: float = 0.0,
        seed: int = 0,
        fault: Callable[[Config], None] = lambda _: None,
    ) -> None:
        self._space = space
        self._clock = clock
        self._noise = noise
        self._random = random.Random(seed)
        self._fault = fault
        self._last: Config | None = None
        self.measured: list[tuple[Config, frozenset[Phase], int]] = []
        self.neighbours = 0
        """Busy processes beside it; rounds say so as a bench's do."""

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        switch = self._space.switch(self._last, config)
        overhead_s = 0.5 if fresh or (switch is not None and switch >= 2) else 0.02
        self._fault(config)
        self._last = config
        self.measured.append((config, phases, rounds))
        made = tuple(self._round(config, kind, phases) for _ in range(rounds))
        generation_s = sum(r.wall_ms for r in made) / 1000
        self._clock.now_s += overhead_s + generation_s
        return Measurement(
            rounds=made, requested=config.as_dict(), effective=config.as_dict(), unknown=(), load_ms=100.0,
            first_request_ms=50.0, seconds=overhead_s + generation_s, generation_seconds=generation_s,
            memory={"peak_rss_mib": 100.0}, switched=switch,
        )  # fmt: skip

    def true_ms(self, config: Config) -> tuple[float, float]:
        """TTFT and inter-token latency without noise."""
        workload = self._space.workload
        world = surface.World(
            cpus=self._space.machine.effective.cpu_count,
            wait_policy=str(config.get("wait_policy")),
            neighbours=self.neighbours,
        )
        settings = config.as_dict()
        ttft_ms = surface.prefill_ms(world, config.variant, settings, workload.prompt_tokens)
        return ttft_ms, surface.decode_ms(world, config.variant, settings, workload.prompt_tokens, 1)

    def response_ms(self, config: Config) -> float:
        ttft_ms, itl_ms = self.true_ms(config)
        return ttft_ms + (self._space.workload.output_tokens - 1) * itl_ms

    def _round(self, config: Config, kind: Kind, phases: frozenset[Phase]) -> RoundSamples:
        ttft_ms, itl_ms = (
            value * self._random.lognormvariate(0, self._noise) for value in self.true_ms(config)
        )
        gaps = self._space.workload.output_tokens - 1 if kind == "full" else 20
        decoded = (itl_ms,) * gaps if Phase.DECODE in phases else ()
        return RoundSamples(
            kind=kind,
            ttft_ms=(ttft_ms,) if Phase.PREFILL in phases else (),
            gaps_ms=(decoded,) if decoded else (),
            response_ms=(ttft_ms + sum(decoded),) if kind == "full" else (),
            wall_ms=ttft_ms + sum(decoded),
            facts={"wall_ns": (ttft_ms + sum(decoded)) * 1e6}
            | ({"neighbour_ns": 1e6} if self.neighbours else {}),
        )
