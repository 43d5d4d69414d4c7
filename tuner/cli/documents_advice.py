"""What the commands beside search and compare print with --json, as models for docs/schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

from profiles.records import ProfileStatus
from profiles.vocabulary import Workload
from tuner.cli.documents import Metrics, NamedMachine, NamedModel, Ratio, Settings
from tuner.cli.documents_daemon import Rollback


class AskedMachine(NamedMachine):
    """The machine that is asked about."""

    effective_cpus: int


class Measured(BaseModel):
    """What was measured of a recommended profile, on its own machine for its own workload."""

    machine: NamedMachine
    workload: Workload
    quality: str
    status: ProfileStatus
    conditions: str
    engine_build: str
    kernel: str
    created_at: str
    speedup: Ratio | None
    metrics: Metrics


class Recommended(BaseModel):
    """A configuration; without an id and measurements it is an engine's own default."""

    id: str | None
    engine: str
    variant: str
    bits_per_weight: float | None
    config: Settings
    measured: Measured | None


class Recommend(BaseModel):
    """`cputune recommend --json`; `distance` is null for the default."""

    schema_version: Literal[1]
    basis: Literal["exact", "same_machine", "similar", "default"]
    distance: float | None
    confidence: Literal["high", "medium", "low"]
    reasons: list[str]
    changes: list[str]
    machine: AskedMachine
    model: NamedModel
    workload: Workload
    objective: str
    quality: str
    limits: list[str]
    profile: Recommended


class VerifiedProfile(BaseModel):
    """The profile that a server was measured against."""

    id: str
    status: ProfileStatus
    engine: str
    variant: str
    settings: Settings


class Server(BaseModel):
    """The server that was measured."""

    url: str
    model: str


class Share(BaseModel):
    """An estimate with its limits."""

    estimate: float
    low: float
    high: float


class Verify(BaseModel):
    """`cputune verify --json`; `speed` is the server's over the profile's in our session."""

    schema_version: Literal[1]
    profile: VerifiedProfile
    server: Server
    workload: Workload
    metric: str
    conditions: str
    ours: Metrics
    theirs: Metrics
    speed: Ratio
    verdict: Literal["slower", "faster", "as fast", "not resolved"]
    serving_tax: Share
    promised: Ratio | None
    reached: Share | None
    gain_kept: Share | None
    pairs: int
    dropped_rounds: int
    notes: list[str]
    elapsed_s: float


class Invalidate(BaseModel):
    """`cputune invalidate --json`; `profiles` are no answers any more."""

    schema_version: Literal[1]
    trial: int
    study: str
    number: int
    reason: str
    profiles: list[str]


class Check(BaseModel):
    """One check of the database."""

    check: str
    state: Literal["ok", "note", "damaged"]
    message: str
    fix: str


class Checks(BaseModel):
    """`cputune db check --json`."""

    schema_version: Literal[1]
    checks: list[Check]
    sound: bool


DOCUMENTS: Mapping[str, type[BaseModel]] = {
    "recommend": Recommend,
    "verify": Verify,
    "invalidate": Invalidate,
    "rollback": Rollback,
    "db-check": Checks,
}
"""Name of the schema -> its model."""
