"""Beside a busy neighbour: finalists measured quiet and loaded by turns, and weighed by a stated mix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from profiles.records import Measurement as MeasurementKey
from profiles.store import Store
from profiles.vocabulary import Config, Objective, Role, RoundSamples, Setting, TrialStatus, Workload
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.errors import WorkerError
from tuner.events import Event, Observer
from tuner.measurement import placement
from tuner.measurement.asked import SHORT_TOKENS, Kind
from tuner.measurement.measurement import Measurement
from tuner.search.budget import PROVISIONAL_PAIRS, Budget
from tuner.search.ledger import Estimate, Ledger
from tuner.search.objectives import cost, measured_value
from tuner.search.pairs import Plan
from tuner.search.ports import Judge, Recorder, Runner
from tuner.search.space import Space

SEARCH_SHARE = 0.8
"""The part of the budget that the quiet search plans with; the rest is for the finalists' rounds."""
FINALISTS = 10
RANKED = 3
PASSES = 3
FINALS_SHARE = 0.35
"""Of what is left of the budget; the pairs get the rest."""
HOPELESS = 1.25


def is_busy(samples: RoundSamples) -> bool:
    """Whether a neighbour of our own ran beside a round."""
    return "neighbour_ns" in samples.facts


def apart(rounds: Iterable[RoundSamples]) -> tuple[tuple[RoundSamples, ...], tuple[RoundSamples, ...]]:
    """The quiet rounds, and those beside our neighbour."""
    every = tuple(rounds)
    return tuple(r for r in every if not is_busy(r)), tuple(r for r in every if is_busy(r))


def file_rounds(store: Store, key: MeasurementKey, rounds: Iterable[RoundSamples]) -> None:
    """Store rounds of a configuration, those beside our neighbour under the condition `background`."""
    quiet, busy = apart(rounds)
    if quiet:
        store.add_rounds(key, quiet)
    if busy:
        store.add_rounds(replace(key, conditions="background"), busy)


def mixed(objective: Objective, quiet: float, busy: float, share: float) -> float:
    """The objective's value where `share` of the work runs beside the neighbour: times are weighed, so a
    rate is that of the mean time."""
    weighed = (1 - share) * cost(objective, quiet) + share * cost(objective, busy)
    return cost(objective, weighed)


def mixed_value(
    objective: Objective, workload: Workload, rounds: Sequence[RoundSamples], share: float
) -> float:
    """As `mixed`, of one process's rounds; raises WorkerError without a clean round of both kinds."""
    quiet, busy = (measured_value(objective, workload, some) for some in apart(rounds))
    return mixed(objective, quiet, busy, share)


@dataclass
class ByTurns:
    """A runner whose every measurement is a quiet block and one beside the neighbour, in one process.

    Which comes first changes every two measurements, so that both sides of a pair have the same order and
    neither order is favoured. A process starts, loads and warms up quiet. `beside` has the neighbour run
    while a configuration is measured on `plain`; `quiet` is where all else is known from.
    """

    quiet: Runner
    plain: Runner
    beside: Callable[[Config], AbstractContextManager[object]]
    busy_kind: Kind | None = None
    """Of the busy block; None: as the quiet one."""
    _measured: int = field(default=0, init=False)

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        """Both blocks as one, `rounds` in each; WorkerError as the runners'."""
        busy_first = self._measured // 2 % 2 == 1
        self._measured += 1
        if not busy_first:
            quiet = self.quiet.measure(config, rounds=rounds, kind=kind, phases=phases, fresh=fresh)
            return quiet.joined(self._busy(config, rounds, kind, phases))
        self.plain.measure(config, rounds=0, fresh=fresh)
        busy = self._busy(config, rounds, kind, phases)
        return busy.joined(self.quiet.measure(config, rounds=rounds, kind=kind, phases=phases))

    def _busy(self, config: Config, rounds: int, kind: Kind, phases: frozenset[Phase]) -> Measurement:
        with self.beside(config):
            return self.plain.measure(config, rounds=rounds, kind=self.busy_kind or kind, phases=phases)


def finalists(space: Space, leaders: Sequence[Config], baseline: Config) -> list[Config]:
    """Who is measured beside the neighbour, `FINALISTS` at most: the default, the leaders, and the first
    leader with what may matter there: a CPU left free, one thread to decode, other ways to wait, other
    placements."""
    every = (baseline, *leaders, *(_variants(space, leaders[0]) if leaders else ()))
    return list({config.key: config for config in every}.values())[:FINALISTS]


def _variants(space: Space, leader: Config) -> Iterator[Config]:
    part = space.part(leader.engine)
    threads = [d for d in part.dimensions if d.role is Role.THREADS]
    free = max(space.machine.effective.cpu_count - 1, 1)
    settings = leader.as_dict()
    counts: list[dict[str, Setting]] = [
        {d.name: _at_most(settings.get(d.name), free) for d in threads if Phase.DECODE in d.phases},
        {d.name: _at_most(settings.get(d.name), free) for d in threads},
        {d.name: 1 for d in threads if Phase.DECODE in d.phases},
    ]
    hosts: list[dict[str, Setting]] = [
        {name: value}
        for name in ("wait_policy", placement.PLACEMENT)
        if name in part.by_name
        for value in part.by_name[name].values
    ]
    changes = (*counts, *hosts, *({**counts[0], **host} for host in hosts))
    for change in changes:
        inside = all(value in part.by_name[name].values for name, value in change.items())
        config = space.make(leader.engine, leader.variant, {**settings, **change}) if inside else None
        if config is not None:
            yield config


def _at_most(value: Setting | None, most: int) -> Setting:
    return min(value, most) if isinstance(value, int) else most


class Finals:
    """Ranks the finalists by the mix of their quiet and busy times; `share` is the weight of the busy ones.

    The quiet times of the search are not used: it measured them earlier, and others at other times.
    """

    def __init__(
        self,
        space: Space,
        objective: Objective,
        share: float,
        *,
        runner: ByTurns,
        recorder: Recorder,
        keep: Callable[[Config, Sequence[RoundSamples]], None],
        judge: Judge,
        budget: Budget,
        observer: Observer,
    ) -> None:
        """`keep` files rounds; a finalist that the search did not try becomes a trial by them."""
        self._space, self._objective, self._share = space, objective, share
        self._recorder, self._keep, self._judge = recorder, keep, judge
        self._budget, self._observe = budget, observer
        self.runner = runner
        self._quiet, self._busy = Ledger(space, objective), Ledger(space, objective)

    def run(
        self, baseline: Config, leaders: Sequence[Estimate], tried: Callable[[Config], bool]
    ) -> list[Estimate]:
        """The best three by their mixed objective, best first; the default may be among them.

        `tried` says whether a configuration has a trial. Where the budget does not reach, the leaders stay
        as they are.
        """
        self._observe(Event("stage", "finalists, quiet and beside a busy neighbour"))
        standing = finalists(self._space, [leader.config for leader in leaders], baseline)
        first = standing[:2]
        until_s = self._budget.elapsed_s + FINALS_SHARE * self._budget.left_s
        for number in range(PASSES):
            for config in tuple(standing):
                if (number or config not in first) and self._budget.elapsed_s >= until_s:
                    break
                if not self._look(config, new=not number and not tried(config)):
                    standing.remove(config)
            known = [e for config in standing if (e := self.estimate(config)) is not None]
            best = min((e.cost for e in known), default=0.0)
            standing = [e.config for e in known if e.cost <= HOPELESS * best]
        ranked = sorted(
            (e for config in self._quiet.configs if (e := self.estimate(config)) is not None),
            key=lambda e: e.cost,
        )
        feasible = [e for e in ranked if e.config == baseline or self._judge.feasible(e.config)]
        return feasible[:RANKED] or list(leaders)

    def estimate(self, config: Config) -> Estimate | None:
        """The estimate of the mixed objective, its phases' times those of the quiet rounds; None where a
        block is missing."""
        quiet, busy = self._quiet.estimate(config), self._busy.estimate(config)
        if quiet is None or busy is None:
            return None
        value = mixed(self._objective, quiet.value, busy.value, self._share)
        rounds = min(quiet.rounds, busy.rounds)
        return replace(quiet, value=value, cost=cost(self._objective, value), rounds=rounds)

    def value(self, rounds: Sequence[RoundSamples]) -> float:
        """The mixed objective of one process."""
        return mixed_value(self._objective, self._space.workload, rounds, self._share)

    def plan(self, a: Estimate, b: Estimate, startup_s: float) -> Plan:
        """One full round a block; where six such pairs don't fit into what is left, busy blocks are short.

        Several streams overlap, and short rounds would not tell their response: theirs stay full.
        """
        decoded = self._space.workload.output_tokens - 1
        quiet_s = sum(e.ttft_ms + decoded * e.itl_ms for e in (a, b)) / 1000
        pair_s = 2 * startup_s + quiet_s + self._busy_s(a, b, decoded)
        self.runner.busy_kind = None
        if PROVISIONAL_PAIRS * pair_s > self._budget.left_s and self._space.is_separable:
            self.runner.busy_kind = "short"
            pair_s = 2 * startup_s + quiet_s + self._busy_s(a, b, min(SHORT_TOKENS, decoded))
        return Plan(1, pair_s)

    def _busy_s(self, a: Estimate, b: Estimate, gaps: int) -> float:
        known = (self._busy.estimate(e.config) or e for e in (a, b))
        return sum(e.ttft_ms + gaps * e.itl_ms for e in known) / 1000

    def _look(self, config: Config, *, new: bool) -> bool:
        """Measure both blocks of a finalist once; False where it failed."""
        trial = self._recorder.begin(config) if new else None
        try:
            measured = self.runner.measure(config, rounds=1)
        except WorkerError as failure:
            self._observe(Event("note", f"a finalist is left out: {failure.reason}"))
            if trial is not None:
                status = failure.status if self._budget.left_s else TrialStatus.INTERRUPTED
                self._recorder.finish(trial, config, status, failure.reason, None, None)
            return False
        quiet, busy = apart(measured.rounds)
        self._quiet.add(config, quiet)
        self._busy.add(config, busy)
        estimate = self.estimate(config)
        if trial is None:
            self._keep(config, measured.rounds)
            return estimate is not None
        self._keep(config, busy)
        clean = replace(measured, rounds=quiet)
        alone = self._quiet.estimate(config)
        status = TrialStatus.COMPLETE if alone else TrialStatus.INVALID
        reason = None if alone else "every round was disturbed"
        self._recorder.finish(trial, config, status, reason, alone.value if alone else None, clean)
        return estimate is not None
