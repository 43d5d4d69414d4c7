"""The tables `cputune_*`, which are the record of everything measured and published."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Column, Index, MetaData, UniqueConstraint
from sqlmodel import Field, SQLModel

PREFIX = "cputune_"
"""Of every table of ours; Optuna's tables live beside them in the same database."""

Document = dict[str, Any]
"""A column of plain JSON values."""


class Table(SQLModel):
    """The base of our tables; constraints are named, so that migrations can reach them.

    Times are ISO 8601 in UTC with microseconds, which sort as text on every database.
    """

    # Rows are not validated by pydantic, so no command waits for its validators to be built.
    model_config = {"defer_build": True}
    metadata: ClassVar[MetaData] = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def _json(*, nullable: bool = False) -> Column[object]:
    return Column(JSON(none_as_null=True), nullable=nullable)


class MachineRow(Table, table=True):
    """A machine by its fingerprint."""

    __tablename__ = "cputune_machine"

    fingerprint: str = Field(primary_key=True)
    label: str
    document: Document = Field(sa_column=_json())
    created_at: str


class ModelRow(Table, table=True):
    """A registered model by the digest of its weights."""

    __tablename__ = "cputune_model"
    __table_args__ = (UniqueConstraint("name"),)

    digest: str = Field(primary_key=True)
    name: str
    source: str
    info: Document = Field(sa_column=_json())
    created_at: str


class VariantRow(Table, table=True):
    """A variant of a model by the engine that runs it; several may share one digest."""

    __tablename__ = "cputune_variant"
    __table_args__ = (UniqueConstraint("model_digest", "engine", "label"),)

    id: int | None = Field(default=None, primary_key=True)
    model_digest: str = Field(foreign_key="cputune_model.digest")
    engine: str
    label: str
    digest: str = Field(index=True)
    tensor_mix: dict[str, int] = Field(sa_column=_json())
    bits_per_weight: float
    file_bytes: int = Field(sa_type=BigInteger)
    recipe: Document = Field(sa_column=_json())
    created_at: str


class StudyRow(Table, table=True):
    """A study; `attempt` counts the fresh starts under one key."""

    __tablename__ = "cputune_study"
    __table_args__ = (
        UniqueConstraint("key", "attempt"),
        UniqueConstraint("storage_name"),
        Index("ix_cputune_study_question", "fingerprint", "model_digest", "workload_key"),
    )

    id: str = Field(primary_key=True)
    key: str
    attempt: int
    name: str = Field(index=True)
    fingerprint: str = Field(foreign_key="cputune_machine.fingerprint")
    model_digest: str = Field(foreign_key="cputune_model.digest")
    workload: Document = Field(sa_column=_json())
    workload_key: str
    engines: list[str] = Field(sa_column=_json())
    space_hash: str
    storage_name: str
    objectives: list[Document] = Field(sa_column=_json())
    quality_level: str
    limits: list[Document] = Field(sa_column=_json())
    seed: int = Field(sa_type=BigInteger)
    sampler: str
    request: Document = Field(sa_column=_json())
    environment: Document = Field(sa_column=_json())
    engine_builds: dict[str, str] = Field(sa_column=_json())
    status: str
    owner: str
    result: Document = Field(sa_column=_json())
    created_at: str
    updated_at: str = Field(index=True)


class MeasurementRow(Table, table=True):
    """What identifies a set of samples."""

    __tablename__ = "cputune_measurement"

    key: str = Field(primary_key=True)
    fingerprint: str
    engine_build: str
    variant_digest: str = Field(index=True)
    config: Document = Field(sa_column=_json())
    workload: Document = Field(sa_column=_json())
    conditions: str
    created_at: str


class TrialRow(Table, table=True):
    """A configuration tried in a study."""

    __tablename__ = "cputune_trial"
    __table_args__ = (UniqueConstraint("study_id", "number"), Index(None, "study_id", "status"))

    id: int | None = Field(default=None, primary_key=True)
    study_id: str = Field(foreign_key="cputune_study.id")
    number: int
    stage: str
    config: Document = Field(sa_column=_json())
    config_key: str
    status: str
    reason: str | None
    objective_value: float | None
    effective: Document = Field(sa_column=_json())
    metrics: dict[str, float] = Field(sa_column=_json())
    measurement_key: str | None = Field(foreign_key="cputune_measurement.key", index=True)
    facts: Document = Field(sa_column=_json())
    owner: str
    started_at: str
    finished_at: str | None
    invalidated_at: str | None


class RoundRow(Table, table=True):
    """One measured round; `samples` is one array: TTFTs, gaps by stream, response times."""

    __tablename__ = "cputune_round"

    id: int | None = Field(default=None, primary_key=True)
    measurement_key: str = Field(foreign_key="cputune_measurement.key", index=True)
    trial_id: int | None = Field(foreign_key="cputune_trial.id", index=True)
    kind: str
    samples: list[Any] = Field(sa_column=_json())
    wall_ms: float
    dropped: str | None
    facts: dict[str, float] = Field(sa_column=_json())
    created_at: str


class QualityRow(Table, table=True):
    """A quality result under the digest of what it depends on."""

    __tablename__ = "cputune_quality"

    key: str = Field(primary_key=True)
    variant_digest: str = Field(index=True)
    settings: Document = Field(sa_column=_json())
    reference_digest: str
    text_version: str
    engine_build: str
    quality: Document = Field(sa_column=_json())
    created_at: str


class ComparisonRow(Table, table=True):
    """An interleaved comparison of two configurations."""

    __tablename__ = "cputune_comparison"

    id: int | None = Field(default=None, primary_key=True)
    study_id: str = Field(foreign_key="cputune_study.id", index=True)
    config_a: Document = Field(sa_column=_json())
    config_b: Document = Field(sa_column=_json())
    metric: str
    interval: Document | None = Field(sa_column=_json(nullable=True))
    verdict: str | None
    started_at: str
    finished_at: str | None


class PairRow(Table, table=True):
    """One pair of a comparison."""

    __tablename__ = "cputune_pair"
    __table_args__ = (UniqueConstraint("comparison_id", "number"),)

    id: int | None = Field(default=None, primary_key=True)
    comparison_id: int = Field(foreign_key="cputune_comparison.id")
    number: int
    a_values: list[float] = Field(sa_column=_json())
    b_values: list[float] = Field(sa_column=_json())
    dropped: str | None
    facts: Document = Field(sa_column=_json())
    created_at: str


class ProfileRow(Table, table=True):
    """A published profile; `request_key` digests objectives, quality level and limits."""

    __tablename__ = "cputune_profile"
    __table_args__ = (
        Index("ix_cputune_profile_question", "fingerprint", "model_digest", "workload_key", "request_key"),
    )

    id: str = Field(primary_key=True)
    lineage: str
    fingerprint: str = Field(foreign_key="cputune_machine.fingerprint")
    model_digest: str = Field(foreign_key="cputune_model.digest")
    workload: Document = Field(sa_column=_json())
    workload_key: str
    objectives: list[Document] = Field(sa_column=_json())
    quality_level: str
    limits: list[Document] = Field(sa_column=_json())
    request_key: str
    status: str
    conditions: str
    config: Document = Field(sa_column=_json())
    variant_digest: str
    bits_per_weight: float
    metrics: dict[str, float] = Field(sa_column=_json())
    baseline_config: Document = Field(sa_column=_json())
    baseline_metrics: dict[str, float] = Field(sa_column=_json())
    speedup: Document | None = Field(sa_column=_json(nullable=True))
    quality: Document | None = Field(sa_column=_json(nullable=True))
    engine_build: str
    kernel: str
    study_id: str | None = Field(foreign_key="cputune_study.id", index=True)
    comparison_id: int | None = Field(foreign_key="cputune_comparison.id")
    facts: Document = Field(sa_column=_json())
    created_at: str = Field(index=True)


class ProfileTrialRow(Table, table=True):
    """A trial that a profile rests on."""

    __tablename__ = "cputune_profile_trial"

    profile_id: str = Field(foreign_key="cputune_profile.id", primary_key=True)
    trial_id: int = Field(foreign_key="cputune_trial.id", primary_key=True, index=True)


class PromotionRow(Table, table=True):
    """What a daemon promoted, refused or rolled back; a log, which outlives the model's row."""

    __tablename__ = "cputune_promotion"
    __table_args__ = (Index("ix_cputune_promotion_question", "fingerprint", "model_digest", "workload_key"),)

    id: int | None = Field(default=None, primary_key=True)
    fingerprint: str
    model_digest: str
    workload: Document = Field(sa_column=_json())
    workload_key: str
    action: str
    running_id: str | None = Field(foreign_key="cputune_profile.id")
    other_id: str | None = Field(foreign_key="cputune_profile.id")
    reason: str
    numbers: dict[str, float] = Field(sa_column=_json())
    created_at: str
