"""What the commands print with --json, as models: docs/schemas is made of them.

A key may be added under the same `schema_version`; one that is here keeps its name and meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from profiles.bundle import (
    EndDocument,
    MeasurementsDocument,
    ModelDocument,
    QualitiesDocument,
    RoundsDocument,
    StartDocument,
    StudyDocument,
)
from profiles.documents import ProfileDocument
from profiles.vocabulary import Setting, Workload

Settings = dict[str, Setting]
Metrics = dict[str, float]


class Document(BaseModel):
    """A whole document."""

    schema_version: Literal[1]


class Result(BaseModel):
    """A configuration with its flat metrics ("ttft_ms.p50"), in the units of the registry of metrics."""

    engine: str
    variant: str
    bits_per_weight: float | None
    config: Settings
    metrics: Metrics


class Best(Result):
    """The answer of a search; without an id where nothing was published."""

    profile_id: str | None = None


class Side(Result):
    """One side of a comparison, as it was named."""

    name: str


class Ratio(BaseModel):
    """An estimate with the limits of its confidence interval."""

    estimate: float
    low: float
    high: float
    confidence: float


class SpeedUp(BaseModel):
    """Default over best of the objective, inverted for rates; `pairs` of fresh processes showed it."""

    ratio: float
    low: float
    high: float
    confidence: float
    pairs: int


class NamedModel(BaseModel):
    """A model, by the digest of its weights."""

    name: str
    digest: str


class NamedMachine(BaseModel):
    """A machine, by its fingerprint."""

    fingerprint: str
    label: str


class TrialCounts(BaseModel):
    """How the trials of a study ended."""

    complete: int
    pruned: int
    infeasible: int
    failed: int


class QuietAndBusy(BaseModel):
    """The objective's median on a quiet machine and beside a busy neighbour; null where not measured."""

    quiet: float | None
    busy: float | None


class Load(BaseModel):
    """What counted: in `background` mode `busy_share` of the time is beside a busy neighbour."""

    mode: Literal["quiet", "background"]
    busy_share: float = 0.0
    baseline: QuietAndBusy | None = None
    best: QuietAndBusy | None = None


class EngineBest(BaseModel):
    """An engine's best by the search's own rounds; `over_best` is its cost over the best's."""

    engine: str
    best: Result | None
    is_judged: bool
    over_best: float | None
    lost: str | None


class Reference(Result):
    """The reference engine as it comes; `ratio` is the answer's speed over its, by the search's rounds."""

    ratio: float


class Search(Document):
    """`cputune search --json`."""

    study: str
    status: Literal["confirmed", "provisional", "no_gain", "infeasible"]
    conditions: str
    load: Load
    machine: NamedMachine
    model: NamedModel
    workload: Workload
    objective: str
    objectives: list[str]
    quality: str
    limits: list[str]
    baseline: Result
    best: Best | None
    runners_up: list[Result]
    front: list[Result]
    engines: list[EngineBest]
    reference: Reference | None
    pareto: list[Result]
    speedup: SpeedUp | None
    trials: TrialCounts
    dropped_rounds: int
    elapsed_s: float
    ended: str | None = None
    measured_now: bool


class Compare(Document):
    """`cputune compare --json`; with `identical` sides the ratio is noise."""

    comparison: int
    identical: bool
    metric: str
    model: NamedModel
    workload: Workload
    conditions: str
    a: Side
    b: Side
    ratio: Ratio
    verdict: Literal["a", "b", "no difference", "not resolved"]
    pairs: int
    values: list[tuple[float, float]]
    pairs_needed: int | None
    dropped_rounds: int
    elapsed_s: float


class EngineRow(BaseModel):
    """An engine, and why it does not run where it does not."""

    name: str
    available: bool
    version: str | None
    build: str | None
    reason: str | None
    note: str | None
    variants: list[str]


class Engines(Document):
    """`cputune engines --json`."""

    engines: list[EngineRow]


class CoreKind(BaseModel):
    """Cores that are alike."""

    kind: str
    cpus: list[int]
    physical_cores: int | None
    max_mhz: float | None


class Node(BaseModel):
    """A NUMA node."""

    id: int
    cpus: list[int]
    memory_bytes: int | None
    distances: list[int]


class CacheLevel(BaseModel):
    """Caches of one level, type and size."""

    level: int
    type: Literal["data", "instruction", "unified"]
    size_bytes: int
    instances: int | None


class Cgroup(BaseModel):
    """The limits of the process's control groups; null where there is none."""

    cpuset_cpus: list[int] | None
    cpu_quota: float | None
    memory_bytes: int | None


class Effective(BaseModel):
    """What this process may really use."""

    cpus: list[int]
    cpu_count: int
    cpu_quota: float | None
    limited_by: str
    memory_bytes: int | None


class Advice(BaseModel):
    """Something about the machine that makes it less fit to measure or to answer."""

    id: str
    severity: str
    message: str
    fix: str


class Probe(Document):
    """`cputune probe --json`; null is what could not be read."""

    fingerprint: str
    arch: str | None
    vendor: str | None
    model_name: str | None
    kernel: str | None
    sockets: int | None
    physical_cores: int | None
    logical_cpus: int | None
    threads_per_core: int | None
    core_kinds: list[CoreKind]
    numa_nodes: list[Node]
    caches: list[CacheLevel]
    features: list[str]
    cgroup: Cgroup
    effective: Effective
    bandwidth_gbps: float | None
    advice: list[Advice]
    notes: list[str]


BundleLine = (
    StartDocument
    | ModelDocument
    | QualitiesDocument
    | MeasurementsDocument
    | StudyDocument
    | RoundsDocument
    | ProfileDocument
    | EndDocument
)
DOCUMENTS: Mapping[str, type[BaseModel]] = {
    "search": Search,
    "compare": Compare,
    "engines": Engines,
    "probe": Probe,
    "profile": ProfileDocument,
}
"""Name of the schema -> its model; the lines of a bundle have one schema together, `bundle-line`."""


def schemas() -> dict[str, dict[str, Any]]:
    """Every JSON schema by its name; a machine's line of a bundle is one of `probe` with kind and label."""
    from pydantic import TypeAdapter

    from tuner.cli import documents_advice, documents_past

    every = {**DOCUMENTS, **documents_past.DOCUMENTS, **documents_advice.DOCUMENTS}
    found = {name: model.model_json_schema(mode="serialization") for name, model in every.items()}
    found["bundle-line"] = TypeAdapter(BundleLine).json_schema(mode="serialization")
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {name: {"$schema": draft, **schema} for name, schema in sorted(found.items())}
