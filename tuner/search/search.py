"""The search: rules of thumb, one round per variant, guided trials, a race of the leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from profiles.vocabulary import Config, Objective, RoundSamples, TrialStatus
from tuner.engines.base import BOTH_PHASES, Phase, Role
from tuner.errors import ModelFileError, NothingFeasibleError, WorkerError
from tuner.events import Event, Observer
from tuner.measurement.bench import Measurement
from tuner.search.blame import Blame
from tuner.search.budget import Budget, confirmation_share
from tuner.search.confirm import plan
from tuner.search.ledger import Estimate, Ledger
from tuner.search.ports import Judge, Recorder, Runner
from tuner.search.sampler import Proposer
from tuner.search.space import Space

HOPELESS = 1.25
"""A first round this much above the incumbent ends a trial."""
ROUNDS = 2
BASELINE_ROUNDS = 3
LEADERS = 3
LEADER_ROUNDS = 5
CONTROL_EVERY = 8
SUSPECTS = (Role.WEIGHTS, Role.KV, Role.BATCH, Role.THREADS, Role.PLACEMENT)
"""Where to look for what keeps a default from running."""


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
    ) -> None:
        self._space = space
        self._runner = runner
        self._recorder = recorder
        self._judge = judge
        self._digest_of = digest_of
        self._digests: dict[tuple[str, str], str] = {}
        self._budget = budget
        self._trials = trials
        self._objective = objective
        self._observe = observer
        self._unmade: set[tuple[str, str]] = set()
        self._blame = Blame()
        self._done = 0
        self.startup_s = 0.0
        self.last_failure = ""
        self.default_failure: str | None = None
        self._baseline: Config | None = None
        self.ledger = Ledger(space, objective)
        self._proposer = Proposer(space, seed=seed, excluded=self._is_excluded)
        self.incumbent: Estimate | None = None

    # --- what is known from before -------------------------------------------------------------

    def remember(self, config: Config, rounds: tuple[RoundSamples, ...], status: TrialStatus) -> None:
        """Take a trial of an earlier run of this study: it is not measured again."""
        if status.failed:
            self._fail(config)
            return
        self._blame.worked(config)
        self.ledger.add(config, rounds)
        estimate = self.ledger.estimate(config)
        self._proposer.tell(config, estimate.cost if estimate else None)

    # --- the flow ------------------------------------------------------------------------------

    def run(self, baseline: Config) -> list[Estimate]:
        """Search until the time or the trials are used up, or the space is exhausted."""
        self._stage("baseline")
        self._measure_baseline(baseline)
        self._consider_all()
        self._stage("variants")
        for config in self._first_tries():
            if self._over():
                break
            self._try(config)
        self._stage("guided search")
        while not self._over():
            proposed = self._proposer.propose()
            if proposed is None:
                self._note("every configuration has been tried")
                break
            self._try(proposed)
            self._control()
        self._stage("race of the leaders")
        return self._race()

    def _measure_baseline(self, default: Config) -> None:
        """Measure the default; where it does not run, the nearest configuration that does."""
        for candidate in (default, *self._neighbours(default)):
            self._baseline = candidate
            self._try(candidate, rounds=BASELINE_ROUNDS)
            if candidate in self.ledger:
                return
            if candidate == default:
                self.default_failure = self.last_failure
                self._note(f"the default itself does not run here: {self.last_failure}")

    def _neighbours(self, config: Config) -> Iterator[Config]:
        """Those that differ in one setting; first the settings that choose which code runs."""
        part = self._space.part(config.engine)
        for dimension in sorted(part.dimensions, key=lambda d: SUSPECTS.index(d.role)):
            for value in dimension.values:
                changed = {**config.as_dict(), dimension.name: value}
                neighbour = self._space.make(config.engine, config.variant, changed)
                if neighbour is not None and neighbour != config:
                    yield neighbour

    def baseline_estimate(self) -> Estimate:
        """The default's estimate; raises NothingFeasibleError where it does not run."""
        found = self.ledger.estimate(self._baseline) if self._baseline else None
        if found is None:
            raise NothingFeasibleError(f"the default configuration does not run: {self.last_failure}")
        return found

    def _first_tries(self) -> list[Config]:
        """Every variant under every rule of thumb; the rules of the first before those of the next."""
        found: dict[str, Config] = {}
        for part in self._space.engines:
            for start in self._space.starts(part.engine.name):
                for variant in part.variants:
                    config = self._space.make(part.engine.name, variant, start)
                    if config is not None:
                        found.setdefault(config.key, config)
        return list(found.values())

    def _over(self) -> bool:
        spent = self._trials is not None and self._done >= self._trials
        return spent or self._out_of_time()

    def _out_of_time(self) -> bool:
        """Whether what is left is needed to confirm."""
        total_s = self._budget.total_s
        baseline = self.ledger.estimate(self._baseline) if self._baseline else None
        if baseline is None or self.incumbent is None:
            share = 0.5
        else:
            confirmation = plan(baseline, self.incumbent, self.startup_s, total_s, self._space.workload)
            share = confirmation_share(total_s, confirmation.pair_s)
        return self._budget.elapsed_s >= total_s * (1 - share)

    # --- one trial -----------------------------------------------------------------------------

    def _try(self, config: Config, rounds: int = ROUNDS) -> None:
        missing = self.ledger.missing(config)
        if config in self.ledger or self._is_excluded(config) or not self._is_made(config):
            return
        if not missing:
            # Both phases are known from other configurations: nothing is left to measure.
            self._consider(config)
            estimate = self.ledger.estimate(config)
            self._proposer.tell(config, estimate.cost if estimate else None)
            return
        self._trial(config, rounds, missing)

    def _is_made(self, config: Config) -> bool:
        """Make the configuration's variant; False where that fails or where it is another one's twin."""
        name = (config.engine, config.variant)
        if name not in self._digests:
            try:
                digest = self._digest_of(*name)
            except ModelFileError as failure:
                self._note(f"{config.variant} is left out: {failure}")
                self._unmade.add(name)
                return False
            twin = next((label for (_, label), known in self._digests.items() if known == digest), None)
            if twin is not None:
                self._note(f"{config.variant} is left out: the same tensors as {twin}")
                self._unmade.add(name)
                return False
            self._digests[name] = digest
        return True

    def _trial(self, config: Config, rounds: int, phases: frozenset[Phase]) -> None:
        number = self._recorder.begin(config)
        try:
            measured = self._runner.measure(config, rounds=1, phases=phases)
            if self.startup_s == 0.0:
                self.startup_s = measured.seconds - measured.generation_seconds
            self.ledger.add(config, measured.rounds)
            if rounds > 1 and not self._hopeless(config):
                more = self._runner.measure(config, rounds=rounds - 1, phases=phases)
                self.ledger.add(config, more.rounds)
                measured = measured.joined(more)
        except WorkerError as failure:
            self._lose(number, config, failure.status, failure.reason)
            return
        self._blame.worked(config)
        self._finish(number, config, measured)

    def _finish(self, number: int, config: Config, measured: Measurement) -> None:
        estimate = self.ledger.estimate(config)
        if estimate is None:
            self._lose(number, config, TrialStatus.INVALID, "every round was disturbed")
            return
        status = TrialStatus.PRUNED if self._hopeless(config) else TrialStatus.COMPLETE
        self._consider(config)
        if self._judge.known_bad(config):
            status = TrialStatus.INFEASIBLE
        self._recorder.finish(number, config, status, None, estimate.value, measured)
        self._done += 1
        self._proposer.tell(config, estimate.cost, infeasible=status is TrialStatus.INFEASIBLE)
        self._tell_trial(number, config, status, estimate.value, None)

    def _lose(self, number: int, config: Config, status: TrialStatus, reason: str) -> None:
        self._recorder.finish(number, config, status, reason, None, None)
        self._done += 1
        self._fail(config)
        self.last_failure = reason
        self._tell_trial(number, config, status, None, reason)

    def _fail(self, config: Config) -> None:
        self._blame.failed(config)
        self._proposer.tell(config, None)

    def _is_excluded(self, config: Config) -> bool:
        asked = config.variant in self._space.part(config.engine).variants
        return (
            not (asked or config == self._baseline)
            or (config.engine, config.variant) in self._unmade
            or self._blame.rules_out(config)
            or self._judge.known_bad(config)
        )

    def _hopeless(self, config: Config) -> bool:
        estimate = self.ledger.estimate(config)
        best = self.incumbent
        return estimate is not None and best is not None and estimate.cost > HOPELESS * best.cost

    # --- the best so far -----------------------------------------------------------------------

    def _consider(self, config: Config) -> None:
        estimate = self.ledger.estimate(config)
        if estimate is None or self._judge.known_bad(config):
            return
        better = self.incumbent is None or estimate.cost < self.incumbent.cost
        if better and self._judge.feasible(config):
            self.incumbent = estimate

    def _consider_all(self) -> None:
        for known in self.ledger.ranked():
            self._consider(known.config)

    def _control(self) -> None:
        """Measure the incumbent again now and then: one lucky round must not steer for good."""
        if self._done % CONTROL_EVERY == 0 and self.incumbent is not None:
            self._again(self.incumbent.config, 1)
            self._refresh()

    def _refresh(self) -> None:
        """Choose the incumbent anew, after its own samples changed."""
        self.incumbent = None
        self._consider_all()

    def _race(self) -> list[Estimate]:
        """Measure the leaders in turn until each has enough rounds; then rank them."""
        for _ in range(LEADER_ROUNDS):
            behind = [e for e in self.leaders() if e.rounds < LEADER_ROUNDS]
            if not behind or self._out_of_time():
                break
            for estimate in behind:
                self._again(estimate.config, 1)
        self._refresh()
        return self.leaders()

    def leaders(self, count: int = LEADERS) -> list[Estimate]:
        """The best feasible estimates; judges quality where it is not known yet."""
        found: list[Estimate] = []
        for estimate in self.ledger.ranked():
            if len(found) == count:
                break
            if not self._is_excluded(estimate.config) and self._judge.feasible(estimate.config):
                found.append(estimate)
        return found

    def _again(self, config: Config, rounds: int) -> None:
        if config not in self.ledger:
            # A combination of two measured phases becomes a trial of its own when it leads.
            self._trial(config, rounds, BOTH_PHASES)
            return
        try:
            measured = self._runner.measure(config, rounds=rounds)
        except WorkerError as failure:
            self._note(f"measuring again failed: {failure.reason}")
            self._blame.failed(config)
            return
        self.ledger.add(config, measured.rounds)
        self._recorder.more_rounds(config, measured.rounds)

    # --- events --------------------------------------------------------------------------------

    def _stage(self, name: str) -> None:
        self._observe(Event("stage", name))

    def _note(self, text: str) -> None:
        self._observe(Event("note", text))

    def _tell_trial(
        self, number: int, config: Config, status: TrialStatus, value: float | None, reason: str | None
    ) -> None:
        detail = {
            "number": number,
            "status": status,
            "config": config,
            "value": value,
            "reason": reason,
            "best": self.incumbent,
            "left_s": self._budget.left_s,
        }
        self._observe(Event("trial", reason or "", detail))
