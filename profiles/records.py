"""What the store takes in and hands out, as frozen values that no session stands behind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from profiles.vocabulary import (
    Config,
    Interval,
    Limit,
    ModelInfo,
    Objective,
    Quality,
    Setting,
    TrialStatus,
    Workload,
)

Conditions = Literal["quiet", "loaded", "background"]
"""Whether the machine was quiet while measuring, or other work was part of the measurement.

`background`: samples beside a busy neighbour that cputune ran itself; a profile that was chosen by them and
quiet ones together."""


class StudyStatus(StrEnum):
    """How far a study came; a `running` one whose process is gone reads as `interrupted`."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    PROVISIONAL = "provisional"
    CONFIRMED = "confirmed"
    NO_GAIN = "no_gain"
    INFEASIBLE = "infeasible"
    FAILED = "failed"


class ProfileStatus(StrEnum):
    """What stands behind a published profile; `no_gain` publishes the default itself."""

    CONFIRMED = "confirmed"
    PROVISIONAL = "provisional"
    NO_GAIN = "no_gain"


COMPARISON_SPACE = "compare"
"""The space of a study that only holds comparisons: nothing was searched in it."""
CHECK_SPACE = "check"
"""The same for those by which a daemon watches what runs: no history lists them."""


def digest_of(*parts: object) -> str:
    """A hex digest of JSON-like values; equal exactly for equal values in equal order."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def workload_identity(workload: Workload) -> dict[str, object]:
    """What of a workload is measured: all of it but its name and its objective."""
    return {name: value for name, value in workload.to_json().items() if name not in ("name", "objective")}


@dataclass(frozen=True)
class MachineRecord:
    """A machine seen once: `document` is `Machine.to_json()`, `label` its last known host name."""

    fingerprint: str
    label: str
    document: Mapping[str, object]
    created_at: datetime


@dataclass(frozen=True)
class ModelRecord:
    """A registered model and the source it was registered from."""

    name: str
    source: str
    info: ModelInfo
    created_at: datetime


UNKNOWN_ENGINE = ""


@dataclass(frozen=True)
class VariantRecord:
    """A variant of a model; `tensor_mix` maps a tensor type to its bytes, `digest` identifies the weights.

    `engine` runs it; engines may call different variants by one label. It is UNKNOWN_ENGINE where an older
    schema did not say and nothing was measured.
    """

    model_digest: str
    engine: str
    label: str
    digest: str
    tensor_mix: Mapping[str, int]
    bits_per_weight: float
    file_bytes: int
    recipe: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """What a study is about; the first block is its identity, the rest what was asked this time.

    `space_hash` does not depend on quality level or limits. `storage_name` is the wished name of the
    Optuna study. `request` and `environment` (kernel, governor, conditions) are documents.
    """

    fingerprint: str
    model_digest: str
    workload: Workload
    engines: tuple[str, ...]
    space_hash: str
    storage_name: str

    name: str
    objectives: tuple[Objective, ...]
    quality_level: str
    limits: tuple[Limit, ...] = ()
    seed: int = 0
    sampler: str = ""
    request: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, object] = field(default_factory=dict)
    engine_builds: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The digest of the identity: studies of equal key resume each other."""
        return digest_of(
            self.fingerprint,
            self.model_digest,
            workload_identity(self.workload),
            sorted(self.engines),
            self.space_hash,
            self.storage_name,
        )


@dataclass(frozen=True, kw_only=True)
class StudyRecord(StudySpec):
    """A stored study; `storage_name` is now unique (a fresh start adds its number).

    `lineage` is the key that it shares with the earlier and later studies of the same identity; `result`
    is the document that its last search ended with, empty before.
    """

    id: str
    lineage: str
    status: StudyStatus
    owner: str
    result: Mapping[str, object]
    created_at: datetime
    updated_at: datetime

    @property
    def key(self) -> str:
        """The stored key: `storage_name` may have changed since it was made."""
        return self.lineage


@dataclass(frozen=True)
class Measurement:
    """What identifies samples: whoever asks for the same gets the same samples, whatever the objective.

    `config` is the canonical effective configuration.
    """

    fingerprint: str
    engine_build: str
    variant_digest: str
    config: Config
    workload: Workload
    conditions: Conditions = "quiet"

    @property
    def key(self) -> str:
        """Hex digest, equal exactly for equal measurements."""
        # The variant's digest stands for its label: one label may name other bytes after a new recipe.
        return digest_of(
            self.fingerprint,
            self.engine_build,
            self.variant_digest,
            [self.config.engine, self.config.settings],
            workload_identity(self.workload),
            self.conditions,
        )


@dataclass(frozen=True)
class QualityKey:
    """What a quality result depends on; `settings` are those that change the output beyond rounding."""

    variant_digest: str
    settings: tuple[tuple[str, Setting], ...]
    reference_digest: str
    text_version: str
    engine_build: str

    @property
    def key(self) -> str:
        """Hex digest, equal exactly for equal conditions."""
        return digest_of(
            self.variant_digest,
            sorted(self.settings),
            self.reference_digest,
            self.text_version,
            self.engine_build,
        )


@dataclass(frozen=True)
class TrialRecord:
    """One configuration tried in a study; `number` counts from 0 within the study.

    `effective` holds the settings read back from the engine, `metrics` are flat ("ttft_ms.p50").
    `invalidated_at` is set when a user declared the measurement wrong; `reason` then says why.
    """

    id: int
    study_id: str
    number: int
    stage: str
    config: Config
    status: TrialStatus
    reason: str | None
    objective_value: float | None
    effective: Mapping[str, Setting]
    metrics: Mapping[str, float]
    measurement_key: str | None
    facts: Mapping[str, object]
    owner: str
    started_at: datetime
    finished_at: datetime | None
    invalidated_at: datetime | None


@dataclass(frozen=True)
class ComparisonRecord:
    """An interleaved comparison of two configurations; `interval` and `verdict` are None until it ended."""

    id: int
    study_id: str
    config_a: Config
    config_b: Config
    metric: str
    interval: Interval | None
    verdict: str | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class PairRecord:
    """One pair of processes: the metric's values of either side; `dropped` names a contamination."""

    number: int
    a_values: tuple[float, ...]
    b_values: tuple[float, ...]
    dropped: str | None
    facts: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A configuration that is known to answer a request on a machine, with what it was measured against.

    `metrics` are flat. `speedup` is default over best of the objective (inverted for rates).
    `trial_ids` are the trials that the claim rests on. `study_id` is None for one from elsewhere.
    """

    fingerprint: str
    model_digest: str
    workload: Workload
    objectives: tuple[Objective, ...]
    quality_level: str
    limits: tuple[Limit, ...] = ()

    status: ProfileStatus
    conditions: Conditions
    config: Config
    variant_digest: str
    bits_per_weight: float
    metrics: Mapping[str, float]
    baseline_config: Config
    baseline_metrics: Mapping[str, float]
    speedup: Interval | None = None
    quality: Quality | None = None
    engine_build: str
    kernel: str
    study_id: str | None = None
    comparison_id: int | None = None
    trial_ids: tuple[int, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ProfileRecord(Profile):
    """A published profile; `invalidated` is None, or says which trial under it was declared wrong.

    Profiles of equal `lineage` come from studies of equal identity: the newest speaks for them.
    """

    id: str
    lineage: str
    created_at: datetime
    invalidated: str | None = None


class PromotionAction(StrEnum):
    """What a daemon decided about a profile."""

    PROMOTED = "promoted"
    REFUSED = "refused"
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What a daemon decided to run, with its numbers and its reason.

    `running_id` is the profile that runs from then on, None for the engine's defaults; `other_id` the one
    that ran before (promoted), that stayed out (refused) or that was given up (rolled back).
    """

    fingerprint: str
    model_digest: str
    workload: Workload
    action: PromotionAction
    running_id: str | None
    other_id: str | None
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PromotionRecord(Promotion):
    """A stored decision."""

    id: int
    created_at: datetime
