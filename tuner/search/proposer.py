"""Proposals for the next configuration: the most expected improvement per second, under posterior draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from profiles.vocabulary import Config, Objective
from tuner.engines.base import Phase, Scope
from tuner.measurement.asked import SHORT_TOKENS
from tuner.search.ledger import Estimate, Ledger
from tuner.search.model import PhaseModel
from tuner.search.objectives import weights
from tuner.search.space import Space
from tuner.search.table import Floats, Mask, tables

SAMPLER_NAME = "additive model, expected improvement per second"
"""How configurations are chosen; a study keeps it."""
DRAWS = 16
RANDOM_EVERY = 10
"""Every so many proposals one is drawn blindly, so that no region is given up for a wrong model."""
WORTH_IT = 0.99
"""A cost above this share of the best is no improvement worth more search."""
UNLIKELY = 0.05
PATIENCE = 5
"""So many proposals in a row must find an improvement unlikely."""
USUAL_SWITCH_S = {None: 0.0, Scope.RUN: 0.01, Scope.CONTEXT: 0.1, Scope.LOAD: 1.0, Scope.PROCESS: 1.0}


@dataclass(frozen=True)
class Aim:
    """A cost to make small: so much a millisecond of either phase, and what a configuration adds itself."""

    weights: Mapping[Phase, float]
    extra: Callable[[Config], float] = lambda _: 0.0

    def cost(self, config: Config, ttft_ms: float, itl_ms: float) -> float:
        """Of a configuration with these phase times."""
        timed = zip(Phase, (ttft_ms, itl_ms), strict=True)
        return self.extra(config) + sum(self.weights[phase] * ms for phase, ms in timed)


class Choice(NamedTuple):
    """A row of each phase's table; together they are a configuration."""

    prefill: int
    decode: int


class Proposer:
    """Proposes configurations of which some phase was not measured and that are not excluded.

    Configurations of one group share every setting that both phases have, so each prefill row of it goes
    with each decode row: a group's best is the sum of two minima, and the product is never listed.
    """

    def __init__(
        self,
        space: Space,
        objective: Objective,
        ledger: Ledger,
        *,
        seed: int,
        excluded: Callable[[Config], bool],
        odds: Callable[[Config], float] = lambda _: 1.0,
    ) -> None:
        """`excluded` says what is left out, `odds` how likely a configuration keeps the quality level."""
        self._space = space
        self._ledger = ledger
        self._excluded = excluded
        self._odds = odds
        self._random = random.Random(seed)
        self._rng = np.random.default_rng(seed)
        self._aim = Aim(dict(zip(Phase, weights(objective, space.workload), strict=True)))
        self._tables = tables(space, self._random)
        self._models = {
            phase: PhaseModel(space, phase, table.configs) for phase, table in self._tables.items()
        }
        self._closed: Mask = np.zeros(len(self._tables[Phase.DECODE].starts), dtype=bool)
        decode = self._tables[Phase.DECODE]
        self._firsts = firsts = [decode.configs[start] for start in decode.starts]
        self._kinds: dict[Config, int] = {}
        self._kind = np.array(
            [self._kinds.setdefault(space.quality_key(config), len(self._kinds)) for config in firsts]
        )
        heavy = [self._heavy(config) for config in firsts]
        self._numbers = {config: number for number, config in enumerate(dict.fromkeys(heavy))}
        self._loads = np.array([self._numbers[config] for config in heavy])
        self._switch_s: dict[Scope | None, float] = dict(USUAL_SWITCH_S)
        self._proposals = 0
        self._unlikely = 0

    @property
    def is_settled(self) -> bool:
        """Whether an improvement of more than 1 % has become unlikely (below 5 %)."""
        return self._unlikely >= PATIENCE

    def switched(self, scope: Scope | None, seconds: float) -> None:
        """Take what a switch took."""
        self._switch_s[scope] += 0.3 * (seconds - self._switch_s[scope])

    def propose(self, last: Config | None, best: Estimate | None, aim: Aim | None = None) -> Config | None:
        """A configuration to measure after `last` in order to beat `best`; None when none is left.

        With an `aim` in place of the objective, the best's cost is by it.
        """
        aim = aim or self._aim
        self._proposals += 1
        known = {phase: table.known(self._ledger) for phase, table in self._tables.items()}
        if best is None or self._proposals % RANDOM_EVERY == 0:
            return self._blind(known)
        times_ms = {
            phase: np.exp(model.draw(self._ledger.samples_ms(phase), DRAWS, self._rng))
            for phase, model in self._models.items()
        }
        costs = {
            phase: np.where(table.lost & ~known[phase], np.inf, times_ms[phase] * aim.weights[phase])
            for phase, table in self._tables.items()
        }
        extra = np.array([aim.extra(config) for config in self._firsts])
        costs[Phase.DECODE] = costs[Phase.DECODE] + extra[self._tables[Phase.DECODE].group]
        odds = np.array([self._odds(kind) for kind in self._kinds])
        # Whether a kind keeps the quality level is drawn too, once for all that answer alike.
        bad = (self._rng.random((DRAWS, len(odds))) >= odds)[:, self._kind]
        found = self._candidates(costs, known, last, bad)
        if not found:
            return self._blind(known)
        self._unlikely = self._unlikely + 1 if self._chance(costs, best, bad) < UNLIKELY else 0

        def worth(choice: Choice) -> float:
            cost = costs[Phase.PREFILL][:, choice.prefill] + costs[Phase.DECODE][:, choice.decode]
            kind = self._kind[self._tables[Phase.DECODE].group[choice.decode]]
            gain = float(odds[kind]) * float(np.maximum(best.cost - cost, 0.0).mean())
            # Where no draw promises a gain, the least bad is worth more than the worse.
            least = 1e-6 * best.cost**2 / float(cost.mean())
            return (gain + least) / self._seconds(choice, found[choice], last, known, times_ms)

        return found[max(found, key=worth)]

    # --- candidates ----------------------------------------------------------------------------

    def _candidates(
        self,
        costs: Mapping[Phase, Floats],
        known: Mapping[Phase, Mask],
        last: Config | None,
        bad: Mask,
    ) -> dict[Choice, Config]:
        """For each draw the best configuration with something unmeasured, over all and without a load."""
        new = {phase: np.where(known[phase], np.inf, costs[phase]) for phase in Phase}
        far = ~self._near(last)
        while True:
            by_group = self._least_new(costs, new)
            found: dict[Choice, Config] = {}
            refused = False
            for shut in (self._closed | bad, self._closed | bad | far):
                totals = np.where(shut, np.inf, by_group)
                for draw, group in enumerate(totals.argmin(axis=1)):
                    if not np.isfinite(totals[draw, group]):
                        continue
                    choice = self._within(costs, new, draw, int(group))
                    config = self._config(choice)
                    if config is not None and not self._excluded(config):
                        found[choice] = config
                        continue
                    refused = True
                    self._refuse(choice, known)
                    for phase, row in zip(Phase, choice, strict=True):
                        if self._tables[phase].lost[row] and not known[phase][row]:
                            costs[phase][:, row] = new[phase][:, row] = np.inf
            if not refused:
                return found

    def _least_new(self, costs: Mapping[Phase, Floats], new: Mapping[Phase, Floats]) -> Floats:
        """The least cost of each group, over its configurations with something unmeasured."""
        prefill, decode = (self._tables[phase] for phase in Phase)
        return np.minimum(
            prefill.least(new[Phase.PREFILL]) + decode.least(costs[Phase.DECODE]),
            prefill.least(costs[Phase.PREFILL]) + decode.least(new[Phase.DECODE]),
        )

    def _within(
        self, costs: Mapping[Phase, Floats], new: Mapping[Phase, Floats], draw: int, group: int
    ) -> Choice:
        """A draw's best configuration of a group with something unmeasured."""
        spans = {phase: table.span(group) for phase, table in self._tables.items()}
        every = {phase: costs[phase][draw, spans[phase]] for phase in Phase}
        fresh = {phase: new[phase][draw, spans[phase]] for phase in Phase}
        by_prefill = fresh[Phase.PREFILL].min() + every[Phase.DECODE].min()
        by_decode = every[Phase.PREFILL].min() + fresh[Phase.DECODE].min()
        if by_prefill <= by_decode:
            pair = fresh[Phase.PREFILL], every[Phase.DECODE]
        else:
            pair = every[Phase.PREFILL], fresh[Phase.DECODE]
        return Choice(*(spans[p].start + int(values.argmin()) for p, values in zip(Phase, pair, strict=True)))

    def _blind(self, known: Mapping[Phase, Mask]) -> Config | None:
        """Any configuration with something unmeasured."""
        while True:
            open_rows = {
                phase: ~table.lost & ~self._closed[table.group] for phase, table in self._tables.items()
            }
            wanted = [
                (phase, row) for phase in Phase for row in np.flatnonzero(open_rows[phase] & ~known[phase])
            ]
            if not wanted:
                return None
            phase, row = self._random.choice(wanted)
            (other,) = set(Phase) - {phase}
            table = self._tables[other]
            span = table.span(int(self._tables[phase].group[row]))
            usable = np.flatnonzero((~table.lost | known[other])[span]) + span.start
            rows = {phase: int(row), other: int(self._random.choice(usable)) if len(usable) else span.start}
            choice = Choice(*(rows[p] for p in Phase))
            config = self._config(choice)
            if config is not None and len(usable) and not self._excluded(config):
                return config
            self._refuse(choice, known)

    def _refuse(self, choice: Choice, known: Mapping[Phase, Mask]) -> None:
        """Leave out what is excluded: the whole group where what it shares is, else the unmeasured rows."""
        prefill = self._tables[Phase.PREFILL]
        if self._excluded(self._space.shared_part(prefill.configs[choice.prefill])):
            self._closed[prefill.group[choice.prefill]] = True
        for phase, row in zip(Phase, choice, strict=True):
            if not known[phase][row]:
                self._tables[phase].lost[row] = True

    def _config(self, choice: Choice) -> Config | None:
        rows = zip(Phase, choice, strict=True)
        return self._space.joined(*(self._tables[phase].configs[row] for phase, row in rows))

    # --- what it costs, and whether it is worth it ---------------------------------------------

    def _near(self, last: Config | None) -> Mask:
        """The groups that need no new process after `last`."""
        if last is None:
            return np.ones(len(self._closed), dtype=bool)
        near: Mask = self._loads == self._numbers.get(self._heavy(last), -1)
        return near

    def _heavy(self, config: Config) -> Config:
        part = self._space.part(config.engine)
        return config.without(d.name for d in part.dimensions if d.scope < Scope.LOAD or len(d.phases) == 1)

    def _seconds(
        self,
        choice: Choice,
        config: Config,
        last: Config | None,
        known: Mapping[Phase, Mask],
        times_ms: Mapping[Phase, Floats],
    ) -> float:
        switch = self._space.switch(last, config)
        ttft_ms, itl_ms = (times_ms[p][:, row].mean() for p, row in zip(Phase, choice, strict=True))
        prefills = not known[Phase.PREFILL][choice.prefill] or (
            switch is not None and switch >= Scope.CONTEXT
        )
        decodes = not known[Phase.DECODE][choice.decode]
        round_ms = ttft_ms * prefills + SHORT_TOKENS * itl_ms * decodes
        return self._switch_s[switch] + float(round_ms) / 1000

    def _chance(self, costs: Mapping[Phase, Floats], best: Estimate, bad: Mask) -> float:
        """The share of draws in which something open is more than 1 % better than the best."""
        least = [table.least(costs[phase]) for phase, table in self._tables.items()]
        totals = np.where(self._closed | bad, np.inf, least[0] + least[1]).min(axis=1)
        own = np.zeros(DRAWS)
        for phase, table in self._tables.items():
            row = table.rows.get(self._space.phase_part(best.config, phase))
            if row is None:
                own = np.full(DRAWS, best.cost)
                break
            own = own + costs[phase][:, row]
        return float((totals < WORTH_IT * own).mean())
