"""What the full grid of a landscape would cost, the measure of every strategy's time."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

from profiles.vocabulary import Config
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.replay import Truth
from tuner.engines.base import Phase, Scope
from tuner.measurement.asked import SHORT_TOKENS, depth_tokens
from tuner.search.space import Space


def grid_cost_s(land: Landscape, truth: Truth) -> float:
    """Seconds of every canonical configuration once, one short round of both phases, switching least.

    Counted group by group, since a product of the phases' parts need not be listed.
    """
    space = land.space
    groups: dict[Config, dict[Phase, list[Config]]] = defaultdict(lambda: {phase: [] for phase in Phase})
    for phase, configs in land.wanted().items():
        for config in configs:
            if truth.knows(config, phase):
                groups[space.shared_part(config)][phase].append(config)
    computed = 1 + depth_tokens(space.workload, SHORT_TOKENS) / space.workload.prompt_tokens
    gaps = min(SHORT_TOKENS, space.workload.output_tokens) - 1
    total_s = 0.0
    rounds: Counter[Config] = Counter()
    held: dict[Config, dict[Scope, set[tuple[Config, ...]]]] = defaultdict(lambda: defaultdict(set))
    for found in groups.values():
        prefill, decode = found[Phase.PREFILL], found[Phase.DECODE]
        ttft_ms = sum(truth.phase_ms(config, Phase.PREFILL) for config in prefill) * len(decode)
        itl_ms = sum(truth.phase_ms(config, Phase.DECODE) for config in decode) * len(prefill)
        total_s += (computed * ttft_ms + gaps * itl_ms) / 1000
        if prefill and decode:
            kind = Config(prefill[0].engine, prefill[0].variant)
            rounds[kind] += len(prefill) * len(decode)
            for scope in (Scope.CONTEXT, Scope.LOAD, Scope.PROCESS):
                parts = ({_held(space, config, scope) for config in phase} for phase in (prefill, decode))
                held[kind][scope].update(itertools.product(*parts))
    for kind, by_scope in held.items():
        made = [rounds[kind], *(len(by_scope[scope]) for scope in list(Scope)[1:]), 0]
        total_s += sum((made[s] - made[s + 1]) * land.overhead(kind, s) for s in Scope)
    return total_s


def _held(space: Space, config: Config, scope: Scope) -> Config:
    """The part of a configuration that makes another process, load or context necessary."""
    return config.without(d.name for d in space.part(config.engine).dimensions if d.scope < scope)
