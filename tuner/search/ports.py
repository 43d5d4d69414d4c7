"""What a search asks of its surroundings: a runner that measures, a recorder that keeps, a judge."""

from __future__ import annotations

from typing import Protocol

from profiles.vocabulary import Config, RoundSamples, TrialStatus
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.measurement.asked import Kind
from tuner.measurement.measurement import Measurement


class Runner(Protocol):
    """Measures configurations: a bench on this machine, or a recorded landscape."""

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        """Run rounds; raises WorkerError for what ends as a failed trial."""


class Recorder(Protocol):
    """Keeps every finished trial."""

    def begin(self, config: Config) -> int:
        """A trial starts; its number in the study."""

    def finish(
        self,
        trial: int,
        config: Config,
        status: TrialStatus,
        reason: str | None,
        value: float | None,
        measured: Measurement | None,
    ) -> None:
        """A trial ended."""

    def more_rounds(self, config: Config, rounds: tuple[RoundSamples, ...]) -> None:
        """More rounds of a configuration that has a trial already."""


class Judge(Protocol):
    """Says whether a configuration keeps the quality level."""

    def feasible(self, config: Config) -> bool:
        """Measures at most once for all configurations that answer alike."""

    def known_bad(self, config: Config) -> bool:
        """Whether it was judged and failed; measures nothing."""
