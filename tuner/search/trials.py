"""Runs trials, and keeps what they say: samples, failures, what is left out, and the best so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from profiles.vocabulary import Config, Objective, RoundSamples, TrialStatus
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.errors import ModelFileError, WorkerError
from tuner.events import Event, Observer
from tuner.measurement.contamination import detector
from tuner.measurement.measurement import Measurement
from tuner.search.blame import Blame
from tuner.search.ledger import Estimate, Ledger
from tuner.search.ports import Judge, Recorder, Runner
from tuner.search.space import Space
from tuner.search.table import ENOUGH_ROUNDS

HOPELESS = 1.25
"""A first round this much above the incumbent says enough; the trial counts as pruned."""
CONTENDER = 1.06
"""A first round this near to the incumbent is worth a second look."""
LEAST_GAIN = 0.01
"""Judging quality takes seconds: a smaller gain is not worth them."""


class Trials:
    """The trials of one search; `incumbent` is the best configuration known to be feasible.

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
        left_s: Callable[[], float],
        observer: Observer,
    ) -> None:
        self._space = space
        self._runner = runner
        self._recorder = recorder
        self._judge = judge
        self._digest_of = digest_of
        self._left_s = left_s
        self._observe = observer
        self._digests: dict[tuple[str, str], str] = {}
        self._unmade: set[tuple[str, str]] = set()
        self._verdicts: dict[Config, bool] = {}
        self._blame = Blame()
        self._reasons: dict[Config, str] = {}
        self.ledger = Ledger(space, objective)
        self.incumbent: Estimate | None = None
        self.baseline: Config | None = None
        self.last: Config | None = None
        self.done = 0
        self.startup_s = 0.0
        self.last_failure = ""
        self.refused_loads: Counter[str] = Counter()
        """How often the engine would not open a file, by its own words."""
        self._dropped: Counter[str] = Counter()

    def remember(
        self, config: Config, rounds: tuple[RoundSamples, ...], status: TrialStatus, reason: str | None
    ) -> None:
        """Take a trial of an earlier run of this study: it is not measured again."""
        if status.failed:
            self._blame.failed(config)
            self._reasons[config] = reason or str(status)
            return
        self._blame.worked(config)
        self.ledger.add(config, rounds)

    def start_anew(self) -> None:
        """Forget every sample; what fails and what keeps the quality level stays known."""
        self.ledger.forget()
        self.incumbent = None

    def forgive(self, config: Config) -> None:
        """Let a configuration that failed in an earlier run be tried once more."""
        self._blame.forgive(config)

    def why_lost(self, config: Config) -> str:
        """Why a configuration measured nothing, in this run or an earlier one."""
        return self._reasons.get(config, self.last_failure)

    def last_reason(self, engine: str) -> str | None:
        """Why the last lost configuration of an engine measured nothing; None where none was lost."""
        return next((why for config, why in reversed(self._reasons.items()) if config.engine == engine), None)

    # --- measuring -----------------------------------------------------------------------------

    def attempt(self, config: Config, *, rounds: int = 1, extra: int = 0) -> Measurement | None:
        """Measure what is missing of a configuration, as a trial, unless it is left out.

        `extra` rounds follow where the first ones come near the incumbent. None where nothing was measured.
        """
        missing = self.ledger.missing(config)
        if not missing or self.is_excluded(config) or not self._is_made(config):
            return None
        return self._trial(config, rounds, extra, missing)

    def again(self, config: Config, phases: frozenset[Phase] = BOTH_PHASES) -> Measurement | None:
        """One more round. A combination of two measured phases becomes a trial of its own by it."""
        if config not in self.ledger:
            return self._trial(config, 1, 0, phases)
        try:
            measured = self._measure(config, 1, phases)
        except WorkerError as failure:
            self.note(f"measuring again failed: {failure.reason}")
            if self._left_s():
                self._blame.failed(config)
            return None
        self._recorder.more_rounds(config, measured.rounds)
        return measured

    def look(self, config: Config, *, extra: int = 0) -> Measurement | None:
        """Measure what is missing; where nothing is, once more what has a single round only."""
        if self.ledger.missing(config):
            return self.attempt(config, extra=extra)
        phases = self.ledger.lacking(config, ENOUGH_ROUNDS)
        return self.again(config, phases) if phases and not self.is_excluded(config) else None

    def _trial(self, config: Config, rounds: int, extra: int, phases: frozenset[Phase]) -> Measurement | None:
        number = self._recorder.begin(config)
        try:
            measured = self._measure(config, rounds, phases)
            if extra and self._within(config, CONTENDER):
                measured = measured.joined(self._measure(config, extra, phases))
        except WorkerError as failure:
            self.refused_loads[failure.reason] += failure.refuses_load
            if self._left_s():
                self._lose(number, config, failure.status, failure.reason)
            else:
                # The clock ended it, which says nothing about the configuration.
                self._recorder.finish(number, config, TrialStatus.INTERRUPTED, failure.reason, None, None)
            return None
        self._blame.worked(config)
        estimate = self.ledger.estimate(config)
        if estimate is None:
            self._lose(number, config, TrialStatus.INVALID, "every round was disturbed")
            return None
        status = TrialStatus.COMPLETE if self._within(config, HOPELESS) else TrialStatus.PRUNED
        if self._judge.known_bad(config):
            status = TrialStatus.INFEASIBLE
        self._recorder.finish(number, config, status, None, estimate.value, measured)
        self.done += 1
        self._tell(number, config, status, estimate.value, None)
        return measured

    def _measure(self, config: Config, rounds: int, phases: frozenset[Phase]) -> Measurement:
        self.last = None
        measured = self._runner.measure(config, rounds=rounds, phases=phases)
        self.last = config
        if self.startup_s == 0.0:
            self.startup_s = measured.seconds - measured.generation_seconds
        self.ledger.add(config, measured.rounds)
        self._dropped.update(detector(r.dropped) for r in measured.rounds if r.dropped is not None)
        return measured

    def _is_made(self, config: Config) -> bool:
        """Make the configuration's variant; False where that fails or where it is another one's twin."""
        name = (config.engine, config.variant)
        if name not in self._digests:
            try:
                digest = self._digest_of(*name)
            except ModelFileError as failure:
                self.note(f"{config.variant} is left out: {failure}")
                self.last_failure = self._reasons[config] = str(failure)
                self._unmade.add(name)
                return False
            twin = next(
                (
                    label
                    for (engine, label), known in self._digests.items()
                    if engine == config.engine and known == digest
                ),
                None,
            )
            if twin is not None:
                self.note(f"{config.variant} is left out: the same tensors as {twin}")
                self._unmade.add(name)
                return False
            self._digests[name] = digest
        return True

    def _lose(self, number: int, config: Config, status: TrialStatus, reason: str) -> None:
        self._recorder.finish(number, config, status, reason, None, None)
        self.done += 1
        self._blame.failed(config)
        self.last_failure = self._reasons[config] = reason
        self._tell(number, config, status, None, reason)

    # --- what it says --------------------------------------------------------------------------

    def is_excluded(self, config: Config) -> bool:
        """Whether it is left out: not asked for, can't be made, fails, or misses the quality level."""
        asked = config.variant in self._space.part(config.engine).variants
        return (
            not (asked or config == self.baseline)
            or (config.engine, config.variant) in self._unmade
            or self._blame.rules_out(config)
            or self._judge.known_bad(config)
        )

    def choose(self) -> None:
        """Choose the incumbent anew, from all that is known by now."""
        self.incumbent = next(iter(self.leaders(1)), None)

    def leaders(self, count: int) -> list[Estimate]:
        """The best feasible estimates; makes their variants and judges quality where it is not known yet and
        worth it."""
        ranked = self.ledger.ranked()
        certain = next((e.cost for e in ranked if self._is_certain(e.config)), float("inf"))
        found: list[Estimate] = []
        for estimate in ranked:
            if len(found) == count:
                break
            config = estimate.config
            # What it promises to gain, times the odds, must be worth the seconds of judging.
            gain = 1 - estimate.cost / certain
            if self.is_excluded(config) or not (
                self.is_judged(config) or self.odds(config) * gain > LEAST_GAIN
            ):
                continue
            # A trial of an earlier run may be of a variant that has left the cache since.
            if self.judge(config):
                found.append(estimate)
                certain = min(certain, estimate.cost)
        return found

    def candidates(self) -> list[Estimate]:
        """All estimates of what is not left out, best first, judged or not."""
        return [e for e in self.ledger.ranked() if not self.is_excluded(e.config)]

    def certain(self) -> list[Estimate]:
        """All estimates that are known to be feasible, best first; judges nothing."""
        return [e for e in self.ledger.ranked() if self._is_certain(e.config)]

    def is_judged(self, config: Config) -> bool:
        """Whether it is known if it keeps the quality level."""
        return self._space.quality_key(config) in self._verdicts

    def judge(self, config: Config) -> bool:
        """Whether it is feasible; makes its variant and judges its quality where that is not known yet."""
        return self._is_made(config) and self._is_feasible(config)

    def odds(self, config: Config) -> float:
        """How likely it keeps the quality level; 1 where only its variant is in question, or it is judged.

        Settings that coarsened one variant's answers too much will hardly do better for another one.
        """
        key = self._space.quality_key(config)
        plain = self._plain(key)
        if key in self._verdicts or key == plain:
            return 1.0
        others = [
            kept
            for known, kept in self._verdicts.items()
            if known.settings == key.settings and self._verdicts.get(self._plain(known), False)
        ]
        return (1 + sum(others)) / (2 + sum(others) + 4 * (len(others) - sum(others)))

    def _plain(self, key: Config) -> Config:
        default = self._space.quality_key(self._space.default(key.engine))
        return Config(key.engine, key.variant, default.settings)

    def _is_feasible(self, config: Config) -> bool:
        feasible = self._judge.feasible(config)
        key = self._space.quality_key(config)
        # A configuration may also miss a limit of its own, which says nothing of its kind's quality.
        self._verdicts[key] = self._verdicts.get(key, False) or feasible
        return feasible

    def _is_certain(self, config: Config) -> bool:
        return self.is_judged(config) and not self.is_excluded(config) and self._judge.feasible(config)

    def _within(self, config: Config, factor: float) -> bool:
        estimate = self.ledger.estimate(config)
        return estimate is None or self.incumbent is None or estimate.cost <= factor * self.incumbent.cost

    # --- events --------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """One line for whoever watches."""
        self._observe(Event("note", text))

    def _tell(
        self, number: int, config: Config, status: TrialStatus, value: float | None, reason: str | None
    ) -> None:
        detail = {
            "number": number,
            "status": status,
            "config": config,
            "value": value,
            "reason": reason,
            "best": self.incumbent,
            "left_s": self._left_s(),
            "dropped": dict(self._dropped),
        }
        self._observe(Event("trial", reason or "", detail))
