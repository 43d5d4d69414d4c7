"""One tick of the watcher: look, decide, act, until there is nothing to do."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from profiles.errors import NotFoundError
from profiles.records import PromotionAction
from service.daemon import promotion
from service.daemon.decide import MEASURES, Action, Charts, Decision, Limits, Sight, decide, failure_name
from service.daemon.drift import FEWEST_SPREAD, Reference, abba, chart
from service.daemon.live import Shift, Values, joined, shift_between
from service.daemon.memory import Memory, Trial
from service.daemon.ports import CouldNotError, Gain, Pairs, World

log = logging.getLogger(__name__)

MOST_STEPS = 8
"""Of one tick: a check, its confirmation, a search, a comparison, and a few that failed."""
SET_PAIRS = 2
USUAL_SPREAD = 0.02
"""Of a pair's log ratio where no comparison tells it."""
LEVEL_SPREAD = 0.04
LIVE_SPREAD = 0.03
REFERENCE_PAIRS = 8
"""So many pairs a reference that had to be measured rests on in the end."""
ERRORS = 3.0
"""Standard errors that a set's drift must exceed to be confirmed, and a rise of live latencies to be one."""
WORSE = 0.05
"""Live latencies that rose by less are not worse."""
REFERENCE_VALUES = 30
SETTLED_VALUES = 60
"""After so many live values without a doubt a promotion is no longer watched."""


@dataclass(frozen=True)
class Rules:
    """How the watcher judges; shares are of 1."""

    limits: Limits
    least_drift: float = 0.05
    least_gain: float = 0.02
    false_alarm_ticks: float = 365.0


class Watcher:
    """Keeps what runs right. `begin` first, then `tick` now and then; on one event loop."""

    def __init__(self, world: World, memory: Memory, rules: Rules) -> None:
        self._world = world
        self.memory = memory
        self.rules = rules
        self.running: str | None = None
        self.question: tuple[str, str] | None = None
        self.last = Decision(Action.WAIT, "it has just begun")
        self._swapping = asyncio.Lock()

    async def begin(self) -> str | None:
        """What is to run from the start: as the history says, else the best that is known (then recorded)."""
        sight = await self._world.look(None, None)
        self.question = sight.circumstances.question
        history = self._world.history(self.question)
        if history:
            self.running = history[0].running_id
        elif sight.known is not None:
            self.running = sight.known
            await self._record(
                PromotionAction.PROMOTED, None, "the best that was known when the daemon began"
            )
        return self.running

    async def tick(self) -> list[Decision]:
        """Act until nothing is left to do, or something failed; what was decided, last of all to wait."""
        decisions: list[Decision] = []
        self._hear(self._world.live())
        while len(decisions) < MOST_STEPS:
            sight = await self._world.look(self.running, self.question)
            self.memory = replace(self.memory, spent=self.memory.spent.on(self._world.today()))
            self._know(sight)
            decision = decide(sight, self.memory, self.charts(), self.rules.limits)
            decisions.append(decision)
            self.last = decision
            if decision.action is Action.WAIT:
                break
            log.info("%s", decision, extra={"action": str(decision.action), "profile": decision.profile})
            failure = await self._act(decision, sight)
            await self._world.keep(self.memory)
            if failure is not None:
                self.last = Decision(Action.WAIT, f"{decision.action} failed: {failure}", decision.profile)
                decisions.append(self.last)
                break
        await self._world.keep(self.memory)
        return decisions

    async def follow(self) -> bool:
        """Run what the history says, where somebody else wrote into it; whether that was another."""
        if self.question is None:
            return False
        async with self._swapping:
            history = self._world.history(self.question)
            if not history or history[0].running_id == self.running:
                return False
            wanted = history[0].running_id
            log.warning("%s: %s", history[0].action, history[0].reason, extra={"profile": wanted})
            await self._world.run(wanted)
            self.running = wanted
            self.memory = self._anew(wanted)
        return True

    def charts(self) -> Charts:
        """The charts of what is remembered."""
        least, every = self.rules.least_drift, self.rules.false_alarm_ticks
        return Charts(
            relative=chart(self._set_spread, least, every, self.memory.relative_sum),
            common=chart(LEVEL_SPREAD, 2 * least, every, self.memory.common_sum),
            live=chart(LIVE_SPREAD, 2 * least, every, self.memory.live_sum),
        )

    @property
    def _set_spread(self) -> float:
        """The standard deviation of a set's log ratio against the reference."""
        reference = self.memory.reference
        spread = USUAL_SPREAD if reference is None else reference.spread
        pairs = REFERENCE_PAIRS if reference is None else max(reference.pairs, SET_PAIRS)
        return max(spread, FEWEST_SPREAD) * math.sqrt(1 / SET_PAIRS + 1 / pairs)

    # --- what is known ---------------------------------------------------------------------------

    def _know(self, sight: Sight) -> None:
        """Where nothing is remembered of what runs, begin with what its profile says."""
        accepted = self.memory.accepted
        if sight.running is not None and (accepted is None or accepted.question != sight.question):
            self.memory = self._anew(sight.running)

    def _anew(self, profile: str | None) -> Memory:
        if profile is None:
            return self.memory.begun_anew(None)
        return self.memory.begun_anew(*self._world.origin(profile))

    def _hear(self, taken: dict[int, list[float]]) -> None:
        """Judge live latencies, once there are enough that are alike."""
        memory = self.memory
        window = joined(memory.window, taken)
        if memory.trial is not None:
            shift = shift_between(memory.trial.before, window)
            if shift is None:
                self.memory = replace(memory, window=window)
                return
            reference, _ = learned(memory.live_reference, window)
            self.memory = replace(
                memory, window={}, live_reference=reference, trial=watched(memory.trial, shift)
            )
            return
        reference, window = learned(memory.live_reference, window)
        shift = shift_between(reference, window)
        if shift is not None:
            live = self.charts().live.add(shift.log_ratio)
            memory, window = replace(memory, live_sum=live.sum), {}
        self.memory = replace(memory, window=window, live_reference=reference)

    # --- acting ----------------------------------------------------------------------------------

    async def _act(self, decision: Decision, sight: Sight) -> CouldNotError | None:
        """Do it; why it failed."""
        acts: dict[Action, Callable[[Decision, Sight], Awaitable[None]]] = {
            Action.ADOPT: self._adopt,
            Action.ROLL_BACK: self._roll_back,
            Action.CHECK: self._check,
            Action.CONFIRM: self._confirm,
            Action.SEARCH: self._search,
            Action.COMPARE: self._compare,
        }
        began_s = self._world.clock_s()
        name = failure_name(decision)
        failure = None
        try:
            await acts[decision.action](decision, sight)
        except CouldNotError as error:
            log.warning("%s failed: %s", decision.action, error, extra={"action": str(decision.action)})
            self.memory = self.memory.with_failure(name, sight.now_s)
            failure = error
        else:
            self.memory = self.memory.without_failure(name)
        if decision.action in MEASURES:
            spent = self.memory.spent.plus(self._world.clock_s() - began_s)
            self.memory = replace(self.memory, spent=spent)
        return failure

    async def _adopt(self, decision: Decision, sight: Sight) -> None:
        is_same = sight.question == sight.circumstances.question
        await self._run(decision.profile)
        self.question = sight.circumstances.question
        if decision.profile is not None:
            # A rollback from the same configuration goes to what ran before both.
            await self._record(PromotionAction.PROMOTED, sight.previous if is_same else None, decision.reason)
        self.memory = self._anew(decision.profile)
        if is_same:
            # The search that found it measured it under what holds now.
            self.memory = replace(self.memory, accepted=sight.circumstances)

    async def _roll_back(self, decision: Decision, sight: Sight) -> None:
        given_up = self.running
        await self._run(decision.profile)
        await self._record(PromotionAction.ROLLED_BACK, given_up, decision.reason)
        self.memory = replace(self._anew(decision.profile), accepted=sight.circumstances)

    async def roll_back(self, reason: str) -> None:
        """Give up what runs for what ran before it, as somebody wishes; NotFoundError where nothing did."""
        if self.running is None:
            raise NotFoundError("the engine's defaults run: there is nothing before them")
        sight = await self._world.look(self.running, self.question)
        await self._roll_back(Decision(Action.ROLL_BACK, reason, sight.previous), sight)
        await self._world.keep(self.memory)

    async def _run(self, profile: str | None) -> None:
        async with self._swapping:
            await self._world.run(profile)
            self.running = profile

    async def _check(self, decision: Decision, sight: Sight) -> None:
        found = abba(await self._measured(sight))
        reference = self.memory.reference or Reference(found.ratio, USUAL_SPREAD, 0)
        level = found.level if reference.level is None else reference.level
        before = self.charts()
        relative = before.relative.add(found.ratio - reference.ratio)
        common = before.common.add(found.level - level)
        slow_sets = self.memory.slow_sets
        if slow_sets:
            still_slow = found.level - level > before.common.slack
            slow_sets, common = (slow_sets + 1, common) if still_slow else (0, replace(common, sum=0.0))
        if not (relative.is_alarmed or common.is_alarmed):
            reference = reference.with_set(found, SET_PAIRS, REFERENCE_PAIRS, before.common.slack)
        self.memory = replace(
            self.memory,
            reference=reference,
            relative_sum=relative.sum,
            common_sum=common.sum,
            slow_sets=slow_sets,
        )

    async def _confirm(self, decision: Decision, sight: Sight) -> None:
        """One more set, which the alarm does not rest on, must show what the alarm says."""
        found = abba(await self._measured(sight))
        charts, reference = self.charts(), self.memory.reference
        if reference is None or reference.level is None:
            reference = (reference or Reference(found.ratio, USUAL_SPREAD, 0)).with_set(
                found, SET_PAIRS, REFERENCE_PAIRS, charts.common.slack
            )
        ratio, level = found.ratio - reference.ratio, found.level - (reference.level or found.level)
        memory = replace(self.memory, reference=reference, relative_sum=0.0, live_sum=0.0)
        if ratio > max(charts.relative.slack, ERRORS * self._set_spread):
            memory = replace(memory, confirmed=ratio)
        elif level > charts.common.slack:
            log.warning(
                "the machine is %.0f %% slower as a whole: heat, its host or other work; a search is begun"
                " if it stays so", 100 * math.expm1(level),
            )  # fmt: skip
            memory = replace(memory, slow_sets=1)
        else:
            log.info("not confirmed: the running profile stands beside its control as it did")
            memory = replace(memory, common_sum=0.0, live_reference={}, window={})
        self.memory = memory

    async def _measured(self, sight: Sight) -> Pairs:
        running = self.running
        pairs = await self._world.measure_set(running)
        if self.running != running:
            raise CouldNotError("another profile was made to run meanwhile")
        self.memory = replace(self.memory, measured_at_s=sight.now_s)
        return pairs

    async def _search(self, decision: Decision, sight: Sight) -> None:
        await self._world.search()
        self.memory = replace(self.memory.begun_anew(sight.circumstances), searched_for=decision.reason)

    async def _compare(self, decision: Decision, sight: Sight) -> None:
        candidate = decision.profile
        assert candidate is not None
        running = self.running
        gain = await self._world.compare(running, candidate)
        if self.running != running:
            log.warning("the comparison is void: another profile was made to run meanwhile")
            return
        reason = f"{decision.reason}; {promotion.words(gain, self.rules.least_gain)}"
        if not promotion.is_promoted(gain, self.rules.least_gain):
            await self._record(PromotionAction.REFUSED, candidate, reason, gain)
            return
        before = joined(self.memory.live_reference, self.memory.window)
        await self._run(candidate)
        await self._record(PromotionAction.PROMOTED, running, reason, gain)
        _, reference = self._world.origin(candidate)
        trial = Trial(before) if before else None
        self.memory = replace(self.memory.begun_anew(sight.circumstances, reference), trial=trial)

    async def _record(
        self, action: PromotionAction, other: str | None, reason: str, gain: Gain | None = None
    ) -> None:
        assert self.question is not None
        log.info("%s: %s", action, reason, extra={"profile": self.running, "other": other})
        await self._world.record(self.question, action, self.running, other, reason, gain)


def learned(reference: Values, values: Values) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """A reference that took what it lacks at each depth from the values, and the rest of them."""
    taken: dict[int, list[float]] = {depth: list(known) for depth, known in reference.items()}
    rest: dict[int, list[float]] = {}
    for depth, new in values.items():
        known = taken.setdefault(depth, [])
        lacking = max(0, REFERENCE_VALUES - len(known))
        known += new[:lacking]
        rest[depth] = list(new[lacking:])
    return taken, rest


def watched(trial: Trial, shift: Shift) -> Trial | None:
    """A promotion's trial after one more window of live latencies; None once it is over."""
    is_worse = shift.log_ratio > math.log1p(WORSE) and shift.log_ratio > ERRORS * shift.error
    worse, values = (trial.worse_windows + 1, trial.values) if is_worse else (0, trial.values + shift.values)
    if worse == 0 and values >= SETTLED_VALUES:
        return None
    return replace(trial, worse_windows=worse, values=values)
