"""The stages of a search: the baseline, one look at every variant, guided trials, a race of the leaders."""

from __future__ import annotations

import math
from collections.abc import Callable

from profiles.vocabulary import Config, Objective, RoundSamples, TrialStatus
from tuner.errors import NothingFeasibleError
from tuner.events import Event, Observer
from tuner.search.both import Both
from tuner.search.budget import Budget, confirmation_share
from tuner.search.by_engine import EngineBest, best_of_each
from tuner.search.confirm import plan
from tuner.search.firsts import first_looks, stand_ins
from tuner.search.ledger import Estimate, Ledger
from tuner.search.limits import Metrics
from tuner.search.ports import Judge, Recorder, Runner
from tuner.search.proposer import Aim, Proposer
from tuner.search.space import Space
from tuner.search.trials import Trials

BASELINE_ROUNDS = 3
BASELINE_SHARE = 0.25
"""Of the budget; past it one round of the default has to do."""
LONGEST_BASELINE = 0.4
"""Of the budget; a default that has not answered by then is given up."""
LEAST_SEARCH = 0.2
"""Of the budget, after the baseline, however long confirming takes: there must be something to confirm."""
MAKING_SHARE = 0.5
"""Of the time that the search has left."""
LEADERS = 3
LEADER_ROUNDS = 5
CONTENDER_ROUNDS = 3
"""So many have a median that one disturbed round can't move far."""
CONTROL_EVERY = 8
RACE_SHARE = 0.15
"""Of the time before the confirmation."""
RIVAL = 1.6
"""An engine's best by rules of thumb that is this much slower than the best may still win by its settings."""
FAR = 3.0
"""An engine of which all that was seen is this much slower is left alone from then on."""
REFUSALS = 2
"""Loads refused in the same words, whatever the settings: then it is the model."""


class Search:
    """One search over a space; `run` returns the leaders, best first, all of them feasible.

    `digest_of` makes an engine's variant and says what is in it.
    """

    def __init__(
        self,
        space: Space,
        objective: Objective,
        *,
        runner: Runner,
        recorder: Recorder,
        judge: Judge,
        digest_of: Callable[[str, str], str],
        budget: Budget,
        trials: int | None,
        seed: int,
        observer: Observer,
        full_budget: bool = False,
        conditions: Callable[[], str] = lambda: "quiet",
        second: Objective | None = None,
        known: Callable[[Config], Metrics] = lambda _: {},
        kept_share: float = 0.0,
    ) -> None:
        """`full_budget` searches on where nothing better is likely; `conditions` says how it is measured now;
        `kept_share` of the budget is for what comes between the search and the confirmation.

        With a `second` objective half of the guided trials weigh both; `known` gives what was measured of a
        configuration besides its times.
        """
        self._both = Both(space, objective, second, known) if second else None
        self._space = space
        self._objective = objective
        self._budget = budget
        self._most_trials = trials
        self._seed = seed
        self._observe = observer
        self._full_budget = full_budget
        self._kept_share = kept_share
        self._conditions = conditions
        self._measured_under = conditions()
        self._trials = Trials(
            space,
            objective,
            runner=runner,
            recorder=recorder,
            judge=judge,
            digest_of=digest_of,
            left_s=lambda: budget.left_s,
            observer=observer,
        )
        self.default_failure: str | None = None
        self._baseline_ended_s: float | None = None
        self.ended: str | None = None
        """Why nothing more was tried although there was time; None where there was none."""

    @property
    def left_s(self) -> float:
        """Seconds that what is measured now may take: the default's first answer may not take all."""
        untried = self._baseline_ended_s is None and self.default_failure is None
        return (self._budget.shortened(LONGEST_BASELINE) if untried else self._budget).left_s

    @property
    def ledger(self) -> Ledger:
        """All samples."""
        return self._trials.ledger

    @property
    def incumbent(self) -> Estimate | None:
        """The best feasible configuration so far."""
        return self._trials.incumbent

    @property
    def startup_s(self) -> float:
        """Seconds of the first start of a worker."""
        return self._trials.startup_s

    def remember(
        self,
        config: Config,
        rounds: tuple[RoundSamples, ...],
        status: TrialStatus,
        reason: str | None = None,
    ) -> None:
        """Take a trial of an earlier run of this study: it is not measured again."""
        self._trials.remember(config, rounds, status, reason)

    def front(self) -> list[Estimate]:
        """The feasible ones that no other one betters in both objectives, the best by the first first; none
        with one objective."""
        return self._both.front(self._trials.certain()) if self._both else []

    def run(self, baseline: Config) -> list[Estimate]:
        """Search until nothing better is likely, the time or the trials are used up, or all is known."""
        self._stage("baseline")
        self._measure_baseline(baseline)
        self._baseline_ended_s = self._budget.elapsed_s
        self._measured_under = self._conditions()
        self._stage("variants")
        self._look_at_variants()
        self._stage("settings")
        self._sweep()
        self._stage("guided search")
        self._guided()
        self._surround()
        self._judge_front()
        self._stage("race of the leaders")
        return self._race()

    def baseline_estimate(self) -> Estimate:
        """The default's estimate; raises NothingFeasibleError where it does not run."""
        baseline = self._trials.baseline
        found = self.ledger.estimate(baseline) if baseline else None
        if found is None:
            raise NothingFeasibleError(f"the default configuration does not run: {self._trials.last_failure}")
        return found

    def feasible(self) -> list[Estimate]:
        """All that is known to be feasible, best first."""
        return self._trials.certain()

    def of_each_engine(self) -> tuple[EngineBest, ...]:
        """The best of each engine, and why it did not win."""
        return tuple(best_of_each(self._space, self._trials))

    def leaders(self, count: int = LEADERS) -> list[Estimate]:
        """The best feasible estimates; judges quality where it is not known yet and worth it."""
        return self._trials.leaders(count)

    # --- stages --------------------------------------------------------------------------------

    def _measure_baseline(self, default: Config) -> None:
        """Measure the default; where it does not run, the nearest configuration that does."""
        self._trials.forgive(default)
        for candidate in (default, *stand_ins(self._space, default)):
            self._trials.baseline = candidate
            # One round first: it is kept, whatever becomes of the others.
            if self._trials.attempt(candidate) is not None:
                for _ in range(BASELINE_ROUNDS - 1):
                    if self._budget.elapsed_s < BASELINE_SHARE * self._budget.total_s:
                        self._trials.again(candidate)
            if self.ledger.estimate(candidate) is not None:
                self._trials.choose()
                return
            reason = self._trials.why_lost(candidate)
            if self._trials.refused_loads[reason] >= REFUSALS:
                raise NothingFeasibleError(
                    f"the default configuration does not run: {reason}; {candidate.engine} does not open this"
                    " model with other settings either"
                )
            if not self._budget.left_s:
                raise NothingFeasibleError(
                    f"the budget of {self._budget.total_s:g} s ended before the default had answered once:"
                    " give it more time, such as --budget 5m"
                )
            if candidate == default:
                self.default_failure = self._trials.why_lost(default)
                self._trials.note(f"the default itself does not run here: {self.default_failure}")

    def _look_at_variants(self) -> None:
        """One round of every engine and variant (`firsts.first_looks`).

        Quality is judged from the fastest down, after all were seen: until one keeps the level.
        """
        for config in first_looks(self._space, loaded=self._conditions() == "loaded"):
            if not self._over():
                self._trials.attempt(config)
                self._keep_alike()
        self._trials.choose()

    def _sweep(self) -> None:
        """Every setting's values around the best, once, what is cheap to switch first; then around the best
        of each engine that settings could bring before it.

        The best moves along, as in tuning by hand. It shows the model each setting's own effect, without
        which all that is far away looks as promising as what is near.
        """
        best = self._best()
        if best is None:
            return
        self._sweep_around(best.config)
        for part in self._space.engines:
            if part.engine.name != best.config.engine:
                rival = self._rival(part.engine.name)
                if rival is not None:
                    self._sweep_around(rival)

    def _sweep_around(self, start: Config) -> None:
        part = self._space.part(start.engine)
        for dimension in sorted(part.dimensions, key=lambda d: d.scope):
            for value in dimension.values:
                own = (e.config for e in self._trials.certain() if e.config.engine == start.engine)
                here = next(own, start)
                config = self._space.make(
                    here.engine, here.variant, {**here.as_dict(), dimension.name: value}
                )
                if config is not None and not self._over(kept=RACE_SHARE):
                    self._trials.attempt(config, extra=CONTENDER_ROUNDS - 1)
                    self._keep_alike()
                    self._trials.choose()

    def _far_behind(self) -> frozenset[str]:
        """The engines of which nothing seen comes near the best."""
        best = self._best()
        limit = FAR * best.cost if best else math.inf
        near = {e.config.engine for e in self._trials.candidates() if e.cost <= limit}
        return frozenset({e.config.engine for e in self._trials.candidates()} - near)

    def _rival(self, engine: str) -> Config | None:
        """An engine's fastest that keeps the quality level, where its settings could make it the best."""
        limit = RIVAL * self.incumbent.cost if self.incumbent else math.inf
        for config in [e.config for e in self._trials.candidates() if e.cost <= limit]:
            if config.engine == engine and not self._over(kept=RACE_SHARE) and self._trials.judge(config):
                return config
        return None

    def _guided(self) -> None:
        far = self._far_behind()
        proposer = Proposer(
            self._space,
            self._objective,
            self.ledger,
            seed=self._seed,
            excluded=lambda config: config.engine in far or self._trials.is_excluded(config),
            odds=self._trials.odds,
        )
        while not self._over(kept=RACE_SHARE):
            aim, best = self._aimed() or (None, self._best())
            proposed = proposer.propose(self._trials.last, best, aim)
            if proposed is None:
                self._end("every configuration has been tried")
                break
            if proposer.is_settled and not self._full_budget:
                self._end("nothing more than 1 % better is likely")
                break
            measured = self._trials.look(proposed, extra=CONTENDER_ROUNDS - 1)
            self._keep_alike()
            if measured is not None:
                proposer.switched(measured.switched, measured.seconds - measured.generation_seconds)
            if self._trials.done % CONTROL_EVERY == 0 and self.incumbent is not None:
                # One lucky round must not steer for good.
                self._trials.again(self.incumbent.config)
            self._trials.choose()

    def _end(self, why: str) -> None:
        self.ended = why
        self._trials.note(why)

    def _surround(self) -> None:
        """One round next to the best for every setting and variant, as far as time is left.

        The sweep went around an earlier best. What this shows is what each setting is worth; what proves
        faster takes part in the race.
        """
        best = self._best()
        if best is None:
            return
        for config in self._space.around(best.config):
            if not self._over(kept=RACE_SHARE):
                self._trials.attempt(config)
                self._keep_alike()
        self._trials.choose()

    def _aimed(self) -> tuple[Aim, Estimate] | None:
        """What the next proposal is for and what it is to beat, where not the objective alone counts."""
        share = self._both.turn() if self._both else None
        while self._both is not None and share is not None:
            found = self._both.aim(share, self._trials.candidates())
            if found is None or self._trials.is_judged(found[1].config):
                return found
            self._trials.judge(found[1].config)
        return None

    def _judge_front(self) -> None:
        """Judge the quality of what would stand on the front, until all that stands on it was judged."""
        while self._both is not None and not self._out_of_time():
            standing = self._both.front(self._trials.candidates())
            doubted = next((e.config for e in standing if not self._trials.is_judged(e.config)), None)
            if doubted is None:
                break
            self._trials.judge(doubted)

    def _race(self) -> list[Estimate]:
        """Measure the leaders in turn until each has enough rounds of both phases; then rank them."""
        for _ in range(LEADERS * LEADER_ROUNDS):
            contenders = {e.config: e for e in (*self.leaders(), *self.front())}
            behind = [e for e in contenders.values() if e.rounds < LEADER_ROUNDS]
            if not behind or self._out_of_time():
                break
            for estimate in behind:
                self._trials.again(estimate.config, self.ledger.lacking(estimate.config, LEADER_ROUNDS))
                if self._keep_alike():
                    break
        self._trials.choose()
        return self.leaders()

    def _keep_alike(self) -> bool:
        """Where the load has just become the condition: rank by what is measured under it only.

        Quiet samples would flatter whatever was measured first. No factor brings them up to now, since one
        configuration suffers from a neighbour as another one does not. The default and the leaders are
        measured anew at once, the others where the search comes to them again.
        """
        now, before = self._conditions(), self._measured_under
        self._measured_under = now
        if now == before:
            return False
        ranked = [e.config for e in self.ledger.ranked() if not self._trials.is_excluded(e.config)]
        self._trials.start_anew()
        default = self._trials.baseline
        for config in dict.fromkeys((*((default,) if default else ()), *ranked[:LEADERS])):
            if self._budget.left_s:
                self._trials.attempt(config)
        return True

    def _best(self) -> Estimate | None:
        """What is to be beaten: the baseline where nothing keeps the request's limits yet."""
        baseline = self._trials.baseline
        return self.incumbent or (self.ledger.estimate(baseline) if baseline else None)

    # --- limits --------------------------------------------------------------------------------

    def _over(self, kept: float = 0.0) -> bool:
        spent = self._most_trials is not None and self._trials.done >= self._most_trials
        return spent or self._out_of_time(kept)

    @property
    def making_s(self) -> float:
        """Seconds that making a variant may take, but the default's own: time must be left to measure it."""
        if self._baseline_ended_s is None:
            return math.inf
        return MAKING_SHARE * max(0.0, self._end_s() - self._budget.elapsed_s)

    def _out_of_time(self, kept: float = 0.0) -> bool:
        """Whether what is left is needed to confirm, and the `kept` share of what is before that."""
        return self._budget.elapsed_s >= self._end_s(kept)

    def _end_s(self, kept: float = 0.0) -> float:
        total_s = self._budget.total_s
        baseline = self.ledger.estimate(self._trials.baseline) if self._trials.baseline else None
        if baseline is None or self.incumbent is None:
            share = 0.5
        else:
            confirmation = plan(baseline, self.incumbent, self.startup_s, total_s, self._space.workload)
            share = confirmation_share(total_s, confirmation.pair_s)
        end_s = total_s * max(0.0, 1 - share - self._kept_share) * (1 - kept)
        if self._baseline_ended_s is not None:
            end_s = max(end_s, min(self._baseline_ended_s + LEAST_SEARCH * total_s * (1 - kept), total_s))
        return end_s

    def _stage(self, name: str) -> None:
        self._observe(Event("stage", name))
