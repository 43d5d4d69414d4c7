"""What a trial costs beyond its generation, when only settings of run and context scope change."""

from __future__ import annotations

import random
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Any

from probes.machine import probe
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, Config
from tuner.engines.base import Scope
from tuner.events import ignore
from tuner.home import Home
from tuner.models.source import DEMO
from tuner.request import SearchRequest
from tuner.search.space import Space
from tuner.setup import build_space, open_workshop

TRIALS = 12
ROUNDS = 2
LIMIT = 0.3


def trial_overhead(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """(wall - generation) / generation of trials that change run- and context-scope settings."""
    rows = []
    for workload in options.workloads.split(","):
        request = SearchRequest(
            DEMO, WORKLOADS[workload], QUALITY_LEVELS["any"], engines=(options.engine,), variants=("source",)
        )
        home = Home(folder / workload)
        with Store.open(home.database) as store:
            shop = open_workshop(request, probe(), store, home, ignore)
            space = build_space(request, shop)
            default = space.default(options.engine)
            shares = []
            with shop.bench(seed=options.seed) as bench:
                bench.measure(default, rounds=1)
                for config in near(space, default, random.Random(options.seed)):
                    found = bench.measure(config, rounds=ROUNDS)
                    shares.append(found.seconds / found.generation_seconds - 1.0)
            shop.close()
        rows.append(
            {
                "what": f"overhead of a trial, {workload}",
                "command": f"python -m tests.benchmarks.run trial_overhead --engine {options.engine}",
                "overhead": median(shares),
                "largest": max(shares),
                "trials": len(shares),
                "limit": f"median <= {LIMIT:g} of the generation",
                "kept": median(shares) <= LIMIT,
            }
        )
    return rows


def near(space: Space, default: Config, rng: random.Random) -> list[Config]:
    """Configurations that differ from the default in settings of run and context scope only."""
    part = space.part(default.engine)
    free = [d for d in part.dimensions if d.scope <= Scope.CONTEXT and not d.affects_quality]
    found: dict[Config, None] = {}
    for _ in range(50 * TRIALS):
        changed = {**default.as_dict(), **{d.name: rng.choice(d.values) for d in free if d.values}}
        config = space.make(default.engine, default.variant, changed)
        if config is not None and config != default:
            found[config] = None
        if len(found) == TRIALS:
            break
    return list(found)
