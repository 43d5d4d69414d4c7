"""Replays a landscape: a runner and a judge that answer from it, on a clock that counts the cost."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from statistics import median

from profiles.vocabulary import QUALITY_LEVELS, Config, Quality, RoundSamples, TrialStatus
from tests.benchmarks.landscape import Landscape
from tests.support.surface import FakeClock
from tuner.engines.base import BOTH_PHASES, Phase, Scope
from tuner.errors import WorkerError
from tuner.events import ignore
from tuner.measurement.asked import SHORT_TOKENS, Kind, depth_tokens
from tuner.measurement.measurement import Measurement
from tuner.search.judge import QualityJudge
from tuner.search.objectives import cost, objective_of, predict


class Truth:
    """What the even rounds say: the cost of every configuration, and the best feasible one.

    A part with one round only counts as not recorded, here as in a replay: both halves need one.
    """

    def __init__(self, land: Landscape, *, half: int = 0) -> None:
        """`half` 1 asks the odd rounds instead: what a search could know at most."""
        self._space = land.space
        self._objective = objective_of(land.space.workload)
        self._ms = {
            phase: {part: median(rounds[half::2]) for part, rounds in table.items() if len(rounds) > 1}
            for phase, table in land.samples_ms.items()
        }
        self.best = self._find_best(land)

    def knows(self, config: Config, phase: Phase) -> bool:
        """Whether the phase was recorded for this configuration."""
        return self._space.phase_part(config, phase) in self._ms[phase]

    def phase_ms(self, config: Config, phase: Phase) -> float:
        """TTFT or inter-token latency."""
        return self._ms[phase][self._space.phase_part(config, phase)]

    def cost(self, config: Config) -> float:
        """The objective as something to minimize."""
        ttft_ms, itl_ms = (self.phase_ms(config, phase) for phase in Phase)
        return cost(self._objective, predict(self._objective, self._space.workload, ttft_ms, itl_ms))

    def regret(self, config: Config) -> float:
        """How much worse than the best feasible one, relatively."""
        return self.cost(config) / self.cost(self.best) - 1

    def _find_best(self, land: Landscape) -> Config:
        judge = replay_judge(land)
        every = land.wanted()
        groups: dict[Config, dict[Phase, Config]] = {}
        for phase in Phase:
            for config in every[phase]:
                if not self.knows(config, phase):
                    continue
                known = groups.setdefault(self._space.shared_part(config), {})
                kept = known.get(phase)
                if kept is None or self.phase_ms(config, phase) < self.phase_ms(kept, phase):
                    known[phase] = config
        joined = [
            self._space.joined(found[Phase.PREFILL], found[Phase.DECODE])
            for found in groups.values()
            if len(found) == 2
        ]
        usable = sorted((c for c in joined if c is not None), key=self.cost)
        return next(config for config in usable if judge.feasible(config))


def replay_judge(land: Landscape, spend: Callable[[float], None] = lambda _: None) -> QualityJudge:
    """The product's judge at near-lossless, asking the landscape."""
    asked: list[Config] = []

    def measure(key: Config) -> Quality:
        spend(land.quality_s + (0.0 if asked else land.reference_s))
        asked.append(key)
        found = land.quality.get(key)
        if found is None:
            raise WorkerError(TrialStatus.ENGINE_ERROR, "the quality was not recorded")
        return found

    asks = measure if land.quality else None
    return QualityJudge(land.space, QUALITY_LEVELS["near-lossless"], asks, observer=ignore)


class ReplayRunner:
    """A `tuner.search.ports.Runner` on a landscape: odd rounds, drawn with replacement.

    `watch` is called after every measurement, when its cost has passed on the clock.
    """

    def __init__(
        self,
        land: Landscape,
        clock: FakeClock,
        *,
        seed: int,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self._land = land
        self._space = land.space
        self._clock = clock
        self._random = random.Random(seed)
        self._watch = watch
        self._overhead_s = cache(lambda engine, variant, scope: land.overhead(Config(engine, variant), scope))
        self._last: Config | None = None
        self._cached_tokens = 0

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        """As a bench's; WorkerError for a configuration that was not recorded, when its start was paid for.

        Another process follows, as after any failure.
        """
        scope = Scope.PROCESS if fresh else self._space.switch(self._last, config)
        if scope is not None and scope >= Scope.CONTEXT:
            self._cached_tokens = 0
        overhead_s = self._overhead_s(config.engine, config.variant, scope)
        try:
            made = tuple(self._round(config, kind, phases) for _ in range(rounds))
        except WorkerError:
            self._last = None
            self._clock.now_s += overhead_s
            self._watch()
            raise
        self._last = config
        generation_s = sum(samples.wall_ms for samples in made) / 1000
        self._clock.now_s += overhead_s + generation_s
        self._watch()
        return Measurement(
            rounds=made, requested=config.as_dict(), effective=config.as_dict(), unknown=(), load_ms=100.0,
            first_request_ms=50.0, seconds=overhead_s + generation_s, generation_seconds=generation_s,
            memory={}, switched=scope,
        )  # fmt: skip

    def _round(self, config: Config, kind: Kind, phases: frozenset[Phase]) -> RoundSamples:
        ttft_ms, itl_ms = self._draw(config, Phase.PREFILL), self._draw(config, Phase.DECODE)
        output_tokens = self._space.workload.output_tokens
        gaps = (output_tokens if kind == "full" else min(SHORT_TOKENS, output_tokens)) - 1
        decoded = (itl_ms,) * gaps if Phase.DECODE in phases else ()
        computed = self._prompts_computed(kind, phases)
        # Of a prompt that is in the cache already, the last token is computed again.
        first_ms = computed * ttft_ms if computed else itl_ms
        return RoundSamples(
            kind=kind,
            ttft_ms=(ttft_ms,) if Phase.PREFILL in phases else (),
            gaps_ms=(decoded,) if decoded else (),
            response_ms=(ttft_ms + sum(decoded),) if kind == "full" else (),
            wall_ms=first_ms + sum(decoded),
            facts={},
        )

    def _prompts_computed(self, kind: Kind, phases: frozenset[Phase]) -> float:
        """What a round computes before its gaps, in prompts (`asked.ask_of`): a short one decodes at the
        depth of half the answer."""
        prompt = self._space.workload.prompt_tokens
        depth = prompt
        if kind == "short" and Phase.DECODE in phases:
            depth += depth_tokens(self._space.workload, SHORT_TOKENS)
        before = 0 if Phase.PREFILL in phases else self._cached_tokens
        self._cached_tokens = max(depth, before)
        return max(depth - before, 0) / prompt

    def _draw(self, config: Config, phase: Phase) -> float:
        rounds = self._land.samples_ms[phase].get(self._space.phase_part(config, phase), ())[1::2]
        if not rounds:
            raise WorkerError(TrialStatus.ENGINE_ERROR, f"{phase} of this configuration was not recorded")
        return self._random.choice(rounds)
