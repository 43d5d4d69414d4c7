"""A store, or a part of it, as lines of JSON: one document each, in an order that each can be stored in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from probes.machine import Machine
from profiles.documents import (
    ConfigDocument,
    KnownLimit,
    KnownObjective,
    Part,
    ProfileDocument,
    no_mapping,
    read_machine,
    validated,
)
from profiles.errors import DocumentError
from profiles.records import UNKNOWN_ENGINE, StudyStatus
from profiles.vocabulary import Interval, Setting, TrialStatus, Workload

Plain = dict[str, Any]


class VariantDocument(Part):
    """A made variant; its file is not part of it."""

    engine: str = UNKNOWN_ENGINE
    label: str
    digest: str
    tensor_mix: dict[str, int]
    bits_per_weight: float
    file_bytes: int
    recipe: Plain
    created_at: AwareDatetime


class ModelDocument(Part):
    """A registered model with its variants; `info` is what its file says."""

    schema_version: Literal[1] = 1
    kind: Literal["model"] = "model"
    digest: str
    name: str
    source: str
    info: Plain
    created_at: AwareDatetime
    variants: tuple[VariantDocument, ...]


class QualityDocument(Part):
    """What a quality result depends on, and the result."""

    key: str
    variant_digest: str
    settings: dict[str, Setting]
    reference_digest: str
    text_version: str
    engine_build: str
    quality: Plain
    created_at: AwareDatetime


class QualitiesDocument(Part):
    """Some quality results."""

    schema_version: Literal[1] = 1
    kind: Literal["qualities"] = "qualities"
    qualities: tuple[QualityDocument, ...]


class MeasurementDocument(Part):
    """What identifies a set of samples; `machine` is a fingerprint."""

    key: str
    machine: str
    engine_build: str
    variant_digest: str
    config: ConfigDocument
    workload: Plain
    conditions: str
    created_at: AwareDatetime


class MeasurementsDocument(Part):
    """Some measurements, without their samples."""

    schema_version: Literal[1] = 1
    kind: Literal["measurements"] = "measurements"
    measurements: tuple[MeasurementDocument, ...]


class TrialDocument(Part):
    """A trial of a study; its samples are in the rounds that name it."""

    number: int
    stage: str
    config: ConfigDocument
    status: TrialStatus
    reason: str | None
    objective_value: float | None
    effective: dict[str, Setting]
    metrics: dict[str, float]
    measurement_key: str | None
    facts: Plain
    owner: str
    started_at: AwareDatetime
    finished_at: AwareDatetime | None
    invalidated_at: AwareDatetime | None


class PairDocument(Part):
    """One pair of a comparison."""

    number: int
    a_values: tuple[float, ...]
    b_values: tuple[float, ...]
    dropped: str | None
    facts: Plain
    created_at: AwareDatetime


class ComparisonDocument(Part):
    """An interleaved comparison with its pairs; `started_at` tells a study's comparisons apart."""

    config_a: ConfigDocument
    config_b: ConfigDocument
    metric: str
    interval: Interval | None
    verdict: str | None
    started_at: AwareDatetime
    finished_at: AwareDatetime | None
    pairs: tuple[PairDocument, ...]


class StudyDocument(Part):
    """A study with its trials and comparisons."""

    schema_version: Literal[1] = 1
    kind: Literal["study"] = "study"
    id: str
    key: str
    attempt: int
    storage_name: str
    name: str
    machine: str
    model: str
    workload: Workload
    engines: tuple[str, ...]
    space_hash: str
    objectives: tuple[KnownObjective, ...] = Field(min_length=1)
    quality_level: str
    limits: tuple[KnownLimit, ...]
    seed: int
    sampler: str
    status: StudyStatus
    owner: str
    request: Plain
    environment: Plain
    engine_builds: dict[str, str]
    result: Plain
    created_at: AwareDatetime
    updated_at: AwareDatetime
    trials: tuple[TrialDocument, ...]
    comparisons: tuple[ComparisonDocument, ...]


class RoundDocument(Part):
    """One round; `study` and `trial` (its number) name the trial that measured it, where one did."""

    measurement: str
    study: str | None
    trial: int | None
    kind: Literal["short", "full"]
    ttft_ms: tuple[float, ...]
    gaps_ms: tuple[tuple[float, ...], ...]
    response_ms: tuple[float, ...]
    wall_ms: float
    dropped: str | None
    facts: dict[str, float]
    created_at: AwareDatetime


class RoundsDocument(Part):
    """Some rounds."""

    schema_version: Literal[1] = 1
    kind: Literal["rounds"] = "rounds"
    rounds: tuple[RoundDocument, ...]


class StartDocument(Part):
    """The first line of a bundle."""

    schema_version: Literal[1] = 1
    kind: Literal["bundle"] = "bundle"


class EndDocument(Part):
    """The last line of a bundle: how many documents stand between the first and this one."""

    schema_version: Literal[1] = 1
    kind: Literal["end"] = "end"
    documents: int


@dataclass(frozen=True)
class MachineDocument:
    """A machine as `cputune probe --json` prints it, with its label."""

    machine: Machine
    label: str
    created_at: datetime | None


Document = (
    MachineDocument
    | ModelDocument
    | QualitiesDocument
    | MeasurementsDocument
    | StudyDocument
    | RoundsDocument
    | ProfileDocument
)
_AGAIN = "export it again"
_KINDS: Mapping[str, type[Part]] = {
    "model": ModelDocument,
    "qualities": QualitiesDocument,
    "measurements": MeasurementsDocument,
    "study": StudyDocument,
    "rounds": RoundsDocument,
    "profile": ProfileDocument,
    "bundle": StartDocument,
    "end": EndDocument,
}


def read_lines(lines: Iterable[str], origin: str) -> Iterator[tuple[str, Document]]:
    """Each document of a bundle with its place, checked.

    Raises DocumentError naming line and path of what is wrong, and where the end is missing: a bundle that
    was cut off is not a bundle.
    """
    count = -1
    for number, line in enumerate(lines, start=1):
        place = f"{origin}:{number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DocumentError(f"{place} is no JSON document: {error}", hint=_AGAIN) from error
        document = _read(values, place)
        if isinstance(document, StartDocument) != (count < 0):
            allowed = "bundle in the first line, and only there"
            raise DocumentError(f"{place}: kind", seen=values["kind"], allowed=allowed)
        count += 1
        if isinstance(document, EndDocument):
            if document.documents != count - 1:
                raise DocumentError(f"{place}: documents", seen=document.documents, allowed=str(count - 1))
            return
        if not isinstance(document, StartDocument):
            yield place, document
    raise DocumentError(f"{origin} ends after {max(count, 0)} documents without its last line", hint=_AGAIN)


def is_bundle(first_line: str) -> bool:
    """Whether a text with this first line is a bundle, whole or damaged."""
    try:
        values = json.loads(first_line)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and values.get("kind") == "bundle"


def read_document(values: object, place: str) -> Document:
    """A document that stands alone, checked; DocumentError names `place` and the path of the wrong key."""
    document = _read(values, place)
    if isinstance(document, StartDocument | EndDocument):
        raise DocumentError(f"{place} is a part of a bundle", hint=_AGAIN)
    return document


def _read(values: object, place: str) -> Document | StartDocument | EndDocument:
    if not isinstance(values, Mapping):
        raise no_mapping(values, "document", place)
    kind = values.get("kind", "machine" if "fingerprint" in values else None)
    if kind == "machine":
        return _machine(values, place)
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise DocumentError(f"{place}: kind", seen=kind, allowed=", ".join(["machine", *_KINDS]))
    read = validated(model, values, str(kind), place)
    assert isinstance(read, Document | StartDocument | EndDocument)
    return read


def _machine(values: Mapping[str, Any], place: str) -> MachineDocument:
    own = dict(values)
    label, created_at = own.pop("label", None), own.pop("created_at", None)
    machine = read_machine(own, place)
    try:
        moment = None if created_at is None else datetime.fromisoformat(created_at)
    except (ValueError, TypeError):
        raise DocumentError(f"{place}: created_at", seen=created_at, allowed="a time with its zone") from None
    return MachineDocument(machine, str(label or machine.hostname or "unknown"), moment)
