"""The budget wins: where too many rounds are disturbed, the load becomes the stated condition."""

from __future__ import annotations

from dataclasses import replace

from profiles.records import Conditions
from profiles.vocabulary import Config
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.events import Event, Observer
from tuner.measurement.asked import ABORTED, Kind
from tuner.measurement.bench import RETRIES, Bench
from tuner.measurement.contamination import STOPPED_NS, detector
from tuner.measurement.measurement import Measurement

LOADED_SHARE = 0.3
FEWEST_ROUNDS = 10
DISTURBED = "disturbed."
"""Begins the fact that a round counts though it was disturbed; the detector's name follows."""


class LoadAwareRunner:
    """Runs on a bench and counts disturbed rounds; past 30 % it stops to drop them and says so."""

    def __init__(self, bench: Bench, *, observer: Observer) -> None:
        self._bench = bench
        self._observe = observer
        self.rounds = 0
        self.dropped = 0
        self.conditions: Conditions = "quiet"

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        """As the bench's; under load, disturbed rounds count like others."""
        loaded = self.conditions == "loaded"
        measured = self._bench.measure(
            config, rounds=rounds, kind=kind, phases=phases, fresh=fresh, retries=0 if loaded else RETRIES
        )
        # A round that the service stopped says nothing about the machine's load.
        ran = [r for r in measured.rounds if STOPPED_NS not in r.facts]
        disturbed = sum(r.dropped is not None for r in ran)
        self.rounds += len(ran)
        self.dropped += disturbed
        # Without one clean round, retries included, there would be no measurement.
        entirely = 0 < disturbed == len(ran)
        often = self.rounds >= FEWEST_ROUNDS and self.dropped > LOADED_SHARE * self.rounds
        if not loaded and (entirely or often):
            self.conditions, loaded = "loaded", True
            self._observe(
                Event(
                    "note",
                    f"{self.dropped} of {self.rounds} rounds were disturbed by other work:"
                    " measuring goes on under load, and the profile will say so",
                )
            )
        return _accepted(measured) if loaded else measured


def _accepted(measured: Measurement) -> Measurement:
    """The disturbed rounds as rounds like others, their cause kept as a fact; not those given up."""
    rounds = tuple(
        r
        if r.dropped is None or r.facts.keys() & {ABORTED, STOPPED_NS}
        else replace(r, dropped=None, facts={**r.facts, f"{DISTURBED}{detector(r.dropped)}": 1.0})
        for r in measured.rounds
    )
    return replace(measured, rounds=rounds)
