"""What commands print with --json of what was measured before, as models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from profiles.records import ProfileStatus, StudyStatus
from profiles.vocabulary import TrialStatus
from tuner.cli.documents import Document, Metrics, NamedMachine, Ratio, Settings, SpeedUp
from tuner.cli.documents_daemon import Promotion


class Changed(BaseModel):
    """Something that is not the same in a later search."""

    what: str
    before: Any
    after: Any


class PastSearch(BaseModel):
    """A search of the store; searches of equal `question` can be compared."""

    study: str
    name: str
    status: StudyStatus
    workload: str
    objective: str
    quality: str
    limits: list[str]
    created_at: str
    updated_at: str
    value: float | None
    speedup: SpeedUp | None
    profile_id: str | None
    invalidated: str | None = None
    engine_builds: dict[str, str]
    kernel: str | None


class ListedSearch(PastSearch):
    """A search among others; `changes` are those since the one before of the same question."""

    model: str
    machine: NamedMachine
    trials: int
    question: str
    changes: list[Changed]


class ComparedSide(BaseModel):
    """A configuration that was compared, with the median of its processes' values."""

    engine: str
    variant: str
    config: Settings
    value: float | None


class ListedComparison(BaseModel):
    """A comparison that was measured; `ratio` is a over b, null while it has not ended."""

    comparison: str
    study: str
    model: str
    machine: NamedMachine
    workload: str
    metric: str
    a: ComparedSide
    b: ComparedSide
    ratio: Ratio | None
    verdict: str | None
    pairs: int
    started_at: str
    finished_at: str | None


class ShowComparison(Document, ListedComparison):
    """`cputune show c-ID --json`; each of `values` is a pair of processes, a's value first."""

    values: list[tuple[float, float]]


class History(Document):
    """`cputune history --json`, the last changed first."""

    studies: list[ListedSearch]
    comparisons: list[ListedComparison]
    promotions: list[Promotion]


class Difference(Document):
    """`cputune history --diff A B --json`."""

    a: PastSearch
    b: PastSearch
    same_question: bool
    changes: list[Changed]


class ShownTrial(BaseModel):
    """A trial of a study."""

    id: int
    number: int
    status: TrialStatus
    reason: str | None
    engine: str
    variant: str
    config: Settings
    value: float | None
    metrics: Metrics


class ShownProfile(BaseModel):
    """A published profile; `invalidated` says why it can't be trusted."""

    id: str
    status: ProfileStatus
    conditions: str
    created_at: str
    invalidated: str | None


class Show(Document):
    """`cputune show --json`; `answer` is the document of `cputune search --json`."""

    study: str
    name: str
    status: StudyStatus
    created_at: str
    updated_at: str
    sampler: str
    seed: int
    engine_builds: dict[str, str]
    trial_counts: dict[TrialStatus, int]
    answer: dict[str, Any] | None
    explanation: dict[str, Any] | None
    note: str | None
    invalidated: list[str]
    profile: ShownProfile | None = None
    trials: list[ShownTrial] = Field(default=[])


DOCUMENTS: Mapping[str, type[BaseModel]] = {
    "history": History,
    "history-diff": Difference,
    "show": Show,
    "show-comparison": ShowComparison,
}
"""Name of the schema -> its model."""
