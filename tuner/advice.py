"""A question for advice and the recommendation that answers it, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from probes.machine import Machine
from profiles.records import ModelRecord, ProfileRecord
from profiles.vocabulary import QUALITY_LEVELS, Config, Limit, QualityLevel, Workload

Basis = Literal["exact", "same_machine", "similar", "default"]
Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Question:
    """What is asked: `model` is a registered name or digest, the objective is the workload's.

    `engines` are those that may be recommended; None: all that are registered, but for those that never run
    by default.
    """

    model: str
    workload: Workload
    quality: QualityLevel = QUALITY_LEVELS["near-lossless"]
    limits: tuple[Limit, ...] = ()
    engines: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Recommendation:
    """A configuration for `machine`, and what it rests on.

    `basis` says how near that is: an answer to exactly this question, the machine's answer to another one,
    another machine's, or an engine's own description. `distance` is 0 for exact, None for default.
    `reasons` tell every difference from what was asked, `changes` every setting that was altered. `profile`
    is None for the default; its numbers were measured on `measured_on`, for its own workload.
    """

    basis: Basis
    distance: float | None
    confidence: Confidence
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    config: Config
    bits_per_weight: float | None
    profile: ProfileRecord | None
    measured_on: str | None
    machine: Machine
    model: ModelRecord
    question: Question

    def to_json(self) -> dict[str, Any]:
        """The document of `recommend --json`, without its schema version."""
        asked = self.question
        return {
            "basis": self.basis,
            "distance": self.distance,
            "confidence": self.confidence,
            "reasons": list(self.reasons),
            "changes": list(self.changes),
            "machine": {
                "fingerprint": self.machine.fingerprint,
                "label": label_of(self.machine),
                "effective_cpus": self.machine.effective.cpu_count,
            },
            "model": {"name": self.model.name, "digest": self.model.info.digest},
            "workload": asked.workload.to_json(),
            "objective": asked.workload.objective,
            "quality": asked.quality.name,
            "limits": [str(limit) for limit in asked.limits],
            "profile": {
                "id": None if self.profile is None else self.profile.id,
                "engine": self.config.engine,
                "variant": self.config.variant,
                "bits_per_weight": self.bits_per_weight,
                "config": self.config.as_dict(),
                "measured": None if self.profile is None else self._measured(self.profile),
            },
        }

    def _measured(self, profile: ProfileRecord) -> dict[str, Any]:
        return {
            "machine": {"fingerprint": profile.fingerprint, "label": self.measured_on},
            "workload": profile.workload.to_json(),
            "quality": profile.quality_level,
            "status": str(profile.status),
            "conditions": profile.conditions,
            "engine_build": profile.engine_build,
            "kernel": profile.kernel,
            "created_at": profile.created_at.isoformat(timespec="seconds"),
            "speedup": None if profile.speedup is None else asdict(profile.speedup),
            "metrics": dict(profile.metrics),
        }


def label_of(machine: Machine) -> str:
    """What people call a machine."""
    return machine.model_name or machine.arch or "unknown CPU"
