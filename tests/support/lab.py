"""A search on a response surface, with everything that it asks of its surroundings."""

from __future__ import annotations

from profiles.vocabulary import QUALITY_LEVELS
from tests.support.notes import Notes
from tests.support.surface import LOSSLESS, RUINED, FakeClock, SurfaceRunner
from tuner.search.budget import Budget
from tuner.search.judge import QualityJudge
from tuner.search.objectives import objective_of
from tuner.search.search import Search


class Lab:
    """A search with everything that it asks of its surroundings."""

    def __init__(
        self, space, *, budget_s=60.0, trials=None, seed=0, noise=0.01, fault=lambda _: None, **more
    ):
        self.space = space
        self.clock = FakeClock()
        self.conditions = "quiet"
        self.runner = SurfaceRunner(space, self.clock, noise=noise, seed=seed, fault=fault)
        self.notes = Notes()
        self.events = []
        self.asked = []
        self.ruined = more.get("ruined", {"q4_0"})
        judge = QualityJudge(
            space, QUALITY_LEVELS["near-lossless"], self._quality, observer=self.events.append
        )
        self.search = Search(
            space,
            objective_of(space.workload),
            runner=self.runner,
            recorder=self.notes,
            judge=judge,
            digest_of=more.get("digest_of", lambda engine, label: label),
            budget=Budget.begin(self.clock, budget_s),
            trials=trials,
            seed=seed,
            observer=self._watch,
            full_budget=more.get("full_budget", False),
            conditions=lambda: self.conditions,
        )
        self.first_leader_s = None

    def _quality(self, key):
        self.asked.append(key)
        self.clock.now_s += 2.0
        coarse = "q4_0" in (key.get("type_k"), key.get("type_v"))
        return RUINED if key.variant in self.ruined or coarse else LOSSLESS

    def _watch(self, event):
        self.events.append(event)
        incumbent = self.search.incumbent
        if self.first_leader_s is None and incumbent and incumbent.config != self.default:
            self.first_leader_s = self.clock.now_s

    @property
    def default(self):
        return self.space.default(self.space.engines[0].engine.name)

    def run(self):
        return self.search.run(self.default)

    def regret(self, config):
        feasible = [
            c
            for c in self.space.everything()
            if c.variant not in self.ruined and "q4_0" not in (c.get("type_k"), c.get("type_v"))
        ]
        return self.runner.response_ms(config) / min(map(self.runner.response_ms, feasible)) - 1
