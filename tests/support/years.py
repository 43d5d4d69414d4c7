"""A made-up machine for the watcher: days with upgrades, regressions and neighbours, and what is true."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from profiles.records import PromotionAction, PromotionRecord
from profiles.vocabulary import WORKLOADS
from service.daemon.decide import Candidate, Sight
from service.daemon.drift import Reference
from service.daemon.memory import Circumstances, Memory
from service.daemon.ports import CouldNotError, Gain, Pairs
from service.daemon.promotion import before, kept_out
from tuner.measurement.statistics import look_interval

DAY_S = 86_400.0
NAMES = ("default", "a", "b", "c", "d", "e", "f", "g")
QUESTION = ("f00d", "m0")
PROCESS_NOISE = 0.014
"""Standard deviation of the log of one process's value: 2 % of a pair's ratio."""


@dataclass
class Event:
    """A real change; `quiet_days` are those that it waited for an answer."""

    day: int
    kind: str
    quiet_days: int = 0
    is_told: bool = False


@dataclass
class Year:
    """A world in which a tick is a day.

    `true` are the logs of the configurations' costs, `tax` what serving adds to them.
    """

    seed: int
    day: int = 0
    seconds: float = 0.0
    true: dict[str, float] = field(default_factory=dict)
    tax: dict[str, float] = field(default_factory=dict)
    profiles: dict[str, tuple[str, Circumstances, Reference]] = field(default_factory=dict)
    log: list[PromotionRecord] = field(default_factory=list)
    running: str | None = None
    open: list[Event] = field(default_factory=list)
    answered: list[tuple[Event, int]] = field(default_factory=list)
    false_searches: list[int] = field(default_factory=list)
    false_promotions: list[str] = field(default_factory=list)
    visible: bool = False
    hidden: float = 0.0
    build: int = 0
    kernel: int = 0
    memory: Memory | None = None

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.true = {name: self.random.gauss(0, 0.15) for name in NAMES}
        self.open = [Event(0, "new machine")]

    # --- days ------------------------------------------------------------------------------------

    def dawn(self, day: int) -> None:
        """What this day brings."""
        self.day = day
        draw = self.random.random
        self.visible = draw() < 0.08
        self.hidden = self.random.uniform(0.05, 0.5) if draw() < 0.06 else 0.0
        if draw() < 1 / 60:
            self.build += 1
            self._happens("upgrade")
            self.true = {name: cost + self.random.gauss(0, 0.08) for name, cost in self.true.items()}
        if draw() < 1 / 120:
            self.kernel += 1
            self._happens("upgrade")
        if draw() < 1 / 45 and self.running is not None and self.config(self.running) != "default":
            self.true[self.config(self.running)] += self.random.uniform(0.12, 0.4)
            self._happens("regression")
        if draw() < 1 / 120:
            slower = self.random.uniform(0.15, 0.4)
            self.true = {name: cost + slower for name, cost in self.true.items()}
            self._happens("slow machine")

    def dusk(self) -> None:
        """Count the quiet days on which a change was not answered."""
        for event in self.open:
            event.quiet_days += not self.visible

    def _happens(self, kind: str) -> None:
        self.open.append(Event(self.day, kind))

    def config(self, profile: str | None) -> str:
        """The configuration of a profile."""
        return "default" if profile is None else self.profiles[profile][0]

    @property
    def circumstances(self) -> Circumstances:
        """Today's."""
        return Circumstances(*QUESTION, f"engine {self.build}", f"6.{self.kernel}")

    def _cost(self, name: str) -> float:
        """One process's cost; a hidden neighbour meets all alike, but for some per cent."""
        unlike = self.random.gauss(0, 0.01) if self.hidden else 0.0
        return math.exp(self.true[name] + self.hidden + unlike + self.random.gauss(0, PROCESS_NOISE))

    def _spend(self, seconds: float) -> None:
        self.seconds += seconds

    # --- the port --------------------------------------------------------------------------------

    def clock_s(self) -> float:
        return self.seconds

    def today(self) -> str:
        return str(self.day)

    async def look(self, running: str | None, question: tuple[str, str] | None) -> Sight:
        here = self.circumstances
        out = kept_out(self.log)
        newest = max(self.profiles, key=lambda p: int(p[2:]), default=None)
        is_new = newest is not None and newest != running and newest not in out
        if is_new and self.profiles[newest][1] != here:
            is_new = False
        is_new = is_new and (running is None or int(newest[2:]) > int(running[2:]))
        return Sight(
            now_s=self.day * DAY_S + self.seconds % DAY_S,
            circumstances=here,
            running=running,
            question=question or here.question,
            previous=before(self.log),
            known=newest,
            candidate=Candidate(newest, self.config(newest) == self.config(running)) if is_new else None,
            busy="other work uses 40 % of the CPUs" if self.visible else None,
        )

    def history(self, question: tuple[str, str]) -> Sequence[PromotionRecord]:
        return self.log

    async def record(
        self, question: tuple[str, str], action: PromotionAction, running: str | None, other: str | None,
        reason: str, gain: Gain | None = None,
    ) -> None:  # fmt: skip
        entry = PromotionRecord(
            id=len(self.log), created_at=datetime.now(UTC), fingerprint=question[0], model_digest=question[1],
            workload=WORKLOADS["chat"], action=action, running_id=running, other_id=other, reason=reason,
        )  # fmt: skip
        self.log.insert(0, entry)
        better = self.true[self.config(running)] < self.true[self.config(other)]
        if action is PromotionAction.PROMOTED and gain is not None and not better:
            self.false_promotions.append(f"day {self.day}: {other} -> {running}")

    def origin(self, profile: str) -> tuple[Circumstances, Reference]:
        return self.profiles[profile][1:]

    def live(self) -> dict[int, list[float]]:
        config = self.config(self.running)
        cost = self.true[config] + self.tax.get(config, 0.0) + self.hidden
        if self.visible:
            return {}
        return {
            depth: [cost + 0.1 * depth + self.random.gauss(0, 0.04) for _ in range(20)] for depth in (7, 9)
        }

    async def keep(self, memory: Memory) -> None:
        self.memory = memory

    async def measure_set(self, running: str | None) -> Pairs:
        self._spend(30)
        config = self.config(running)
        return [(self._cost(config), self._cost("default")) for _ in range(2)]

    async def search(self) -> None:
        self._spend(300)
        if self.random.random() < 0.05:
            raise CouldNotError("the search ended with exit code 1")
        if not self.open:
            self.false_searches.append(self.day)
        self.answered += [(event, self.day) for event in self.open]
        self.open = []
        best = min(NAMES, key=lambda name: self.true[name] + self.random.gauss(0, 0.005))
        ratio = self.true[best] - self.true["default"]
        error = 0.0 if best == "default" else self.random.gauss(0, 1.41 * PROCESS_NOISE / math.sqrt(8))
        reference = Reference(ratio + error, 1.41 * PROCESS_NOISE, 8)
        self.profiles[f"p-{len(self.profiles)}"] = (best, self.circumstances, reference)

    async def compare(self, running: str | None, candidate: str) -> Gain:
        self._spend(120)
        now, new = self.config(running), self.config(candidate)
        logs = [math.log(self._cost(now) / self._cost(new)) for _ in range(8)]
        return Gain(look_interval(logs), 8)

    async def run(self, profile: str | None) -> None:
        self.running = profile
