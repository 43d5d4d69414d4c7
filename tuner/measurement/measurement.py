"""What a bench measured of one configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from profiles.vocabulary import RoundSamples, Setting
from tuner.engines.base import Scope


@dataclass(frozen=True)
class Measurement:
    """What was measured of one configuration.

    `rounds` holds contaminated rounds too, marked by `dropped`. `unknown` names the requested settings
    that the engine can't tell. `first_request_ms` is the response time of the process's first request,
    the warm-up; `load_ms` that of its load. `generation_seconds` is the part of `seconds` spent inside
    rounds. `memory` holds metrics in MiB. `switched` is the largest scope that was made anew.
    """

    rounds: tuple[RoundSamples, ...]
    requested: Mapping[str, Setting]
    effective: Mapping[str, Setting]
    unknown: tuple[str, ...]
    load_ms: float
    first_request_ms: float
    seconds: float
    generation_seconds: float
    memory: Mapping[str, float]
    switched: Scope | None

    def joined(self, later: Measurement) -> Measurement:
        """Both as one, of the same configuration."""
        scopes = [scope for scope in (self.switched, later.switched) if scope is not None]
        return replace(
            later,
            rounds=self.rounds + later.rounds,
            seconds=self.seconds + later.seconds,
            generation_seconds=self.generation_seconds + later.generation_seconds,
            switched=max(scopes, default=None),
        )
