"""What the watcher asks of its surroundings: this machine with its store and generator, or a made-up one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from probes.errors import CputuneError
from profiles.records import PromotionAction, PromotionRecord
from profiles.vocabulary import Interval
from service.daemon.decide import Sight
from service.daemon.drift import Reference
from service.daemon.memory import Circumstances, Memory

Pairs = Sequence[tuple[float, float]]
"""Costs of (A, B) by process pair: smaller is better."""


class CouldNotError(CputuneError):
    """Something that was wanted did not come to an end; the message says why."""


@dataclass(frozen=True)
class Gain:
    """How many times faster a candidate is than what runs, from interleaved pairs."""

    ratio: Interval
    pairs: int


class World(Protocol):
    """Everything outside of the watcher. Measuring and running raise CouldNotError."""

    def clock_s(self) -> float:
        """Seconds that only go forward."""

    def today(self) -> str:
        """The date of local time, ISO."""

    async def look(self, running: str | None, question: tuple[str, str] | None) -> Sight:
        """What there is to see now; without a question, that of today."""

    def history(self, question: tuple[str, str]) -> Sequence[PromotionRecord]:
        """What was decided for machine and model, the last first."""

    async def record(
        self,
        question: tuple[str, str],
        action: PromotionAction,
        running: str | None,
        other: str | None,
        reason: str,
        gain: Gain | None = None,
    ) -> None:
        """Write a decision into the history."""

    def origin(self, profile: str) -> tuple[Circumstances, Reference | None]:
        """In what a profile was found, and how it then stood beside its control."""

    def live(self) -> dict[int, list[float]]:
        """Live latencies since the last call (`service.daemon.live.Live.take`)."""

    async def keep(self, memory: Memory) -> None:
        """Remember it across restarts."""

    async def measure_set(self, running: str | None) -> Pairs:
        """One ABBA set of what runs (A) and its control (B); of the defaults, both are them."""

    async def search(self) -> None:
        """Search anew; what is found is published, and seen by the next look."""

    async def compare(self, running: str | None, candidate: str) -> Gain:
        """Compare a candidate with what runs, interleaved."""

    async def run(self, profile: str | None) -> None:
        """Let the generator run a profile, or the engine's defaults."""
