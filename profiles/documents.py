"""Machines and profiles as YAML or JSON documents that move between stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from probes.errors import ProbeError
from probes.machine import Machine
from profiles.errors import DocumentError
from profiles.metrics import is_metric
from profiles.records import Conditions, Profile, ProfileRecord, ProfileStatus
from profiles.vocabulary import Config, Interval, Limit, Objective, Quality, Setting, Workload

SCHEMA_VERSION = 1
"""Of the documents written here; older ones are read, newer ones refused."""

Format = Literal["yaml", "json"]
OfMetric = TypeVar("OfMetric", Objective, Limit)


def _known(given: OfMetric) -> OfMetric:
    """An objective or a limit whose metric can be shown."""
    if not is_metric(given.metric):
        raise ValueError(f"unknown metric '{given.metric}'")
    return given


KnownObjective = Annotated[Objective, AfterValidator(_known)]
KnownLimit = Annotated[Limit, AfterValidator(_known)]


class Part(BaseModel):
    """A document or a part of one: an unknown key is a mistake, so it is refused by its path."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    def plain(self) -> dict[str, object]:
        """Plain values; a number that JSON has no word for becomes text, and reads back as a number."""
        values: dict[str, object] = json.loads(self.model_dump_json())
        return values


class ConfigDocument(Part):
    """A configuration; settings keep their JSON types."""

    engine: str
    variant: str
    settings: dict[str, Setting]

    @classmethod
    def of(cls, config: Config) -> Self:
        """The document of a configuration."""
        return cls(engine=config.engine, variant=config.variant, settings=config.as_dict())

    def value(self) -> Config:
        """The inverse of `of`."""
        return Config.of(self.engine, self.variant, self.settings)


class BaselineDocument(Part):
    """What a profile was measured against."""

    config: ConfigDocument
    metrics: dict[str, float]


class ProfileDocument(Part):
    """A published profile; `machine` is a fingerprint, `model` the digest of its weights.

    `trials` are the numbers, in its study, of those that it rests on; `comparison` is when that began which
    confirmed it.
    """

    schema_version: Literal[1] = 1
    kind: Literal["profile"] = "profile"
    id: str | None = None
    created_at: datetime | None = None
    invalidated: str | None = None
    study: str | None = None
    trials: tuple[int, ...] = ()
    comparison: datetime | None = None
    machine: str
    model: str
    workload: Workload
    objectives: tuple[KnownObjective, ...] = Field(min_length=1)
    quality_level: str
    limits: tuple[KnownLimit, ...] = ()
    status: ProfileStatus
    conditions: Conditions
    config: ConfigDocument
    variant_digest: str
    bits_per_weight: float
    metrics: dict[str, float]
    baseline: BaselineDocument
    speedup: Interval | None = None
    quality: Quality | None = None
    engine_build: str
    kernel: str
    facts: dict[str, Any] = {}


def profile_document(
    profile: Profile, trials: Sequence[int] = (), comparison: datetime | None = None
) -> dict[str, object]:
    """A profile as plain values; a published one also with its id, time, study and what it rests on."""
    published = profile if isinstance(profile, ProfileRecord) else None
    return ProfileDocument(
        id=published.id if published else None,
        created_at=published.created_at if published else None,
        invalidated=published.invalidated if published else None,
        study=profile.study_id,
        trials=tuple(trials),
        comparison=comparison,
        machine=profile.fingerprint,
        model=profile.model_digest,
        workload=profile.workload,
        objectives=profile.objectives,
        quality_level=profile.quality_level,
        limits=profile.limits,
        status=profile.status,
        conditions=profile.conditions,
        config=ConfigDocument.of(profile.config),
        variant_digest=profile.variant_digest,
        bits_per_weight=profile.bits_per_weight,
        metrics=dict(profile.metrics),
        baseline=BaselineDocument(
            config=ConfigDocument.of(profile.baseline_config), metrics=dict(profile.baseline_metrics)
        ),
        speedup=profile.speedup,
        quality=profile.quality,
        engine_build=profile.engine_build,
        kernel=profile.kernel,
        facts=dict(profile.facts),
    ).plain()


def read_profile(document: object, origin: str) -> Profile:
    """The profile of a document, ready to be published here.

    Its study and trials stay in the store they came from: `facts` tells its former id and study as
    `origin_id` and `origin_study`. Raises DocumentError naming `origin` and the path of the wrong key.
    """
    return profile_of(validated(ProfileDocument, document, "profile", origin))


def profile_of(read: ProfileDocument) -> Profile:
    """The profile of a checked document, as `read_profile` gives it."""
    former = {"origin_id": read.id, "origin_study": read.study, "origin_invalidated": read.invalidated}
    return Profile(
        fingerprint=read.machine,
        model_digest=read.model,
        workload=read.workload,
        objectives=read.objectives,
        quality_level=read.quality_level,
        limits=read.limits,
        status=read.status,
        conditions=read.conditions,
        config=read.config.value(),
        variant_digest=read.variant_digest,
        bits_per_weight=read.bits_per_weight,
        metrics=read.metrics,
        baseline_config=read.baseline.config.value(),
        baseline_metrics=read.baseline.metrics,
        speedup=read.speedup,
        quality=read.quality,
        engine_build=read.engine_build,
        kernel=read.kernel,
        facts={**read.facts, **{name: value for name, value in former.items() if value is not None}},
    )


def machine_document(machine: Machine) -> dict[str, object]:
    """A machine as `cputune probe --json` prints it, with its kind."""
    return {"kind": "machine", **machine.to_json()}


def read_machine(document: object, origin: str) -> Machine:
    """The machine of such a document, or of `cputune probe --json`.

    Raises DocumentError naming `origin` and the path of the wrong key.
    """
    if isinstance(document, Mapping) and document.get("kind", "machine") != "machine":
        raise DocumentError(f"{origin}: kind", seen=document["kind"], allowed="machine")
    try:
        return Machine.from_json(document)
    except ProbeError as error:
        raise DocumentError(f"{origin}: {error}") from error


def dumps(document: Mapping[str, object], style: Format) -> str:
    """A document as text; keys keep their order."""
    if style == "json":
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # PyYAML's unescaped output does not read back for every character (U+0085 becomes a space).
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=False)


def loads(text: str, origin: str) -> object:
    """The plain values of a YAML or JSON text; DocumentError with the line where it breaks."""
    try:
        # YAML 1.1 reads the JSON number 1e-05 as text, so JSON has a reader of its own.
        return json.loads(text) if text.lstrip().startswith(("{", "[")) else yaml.safe_load(text)
    except RecursionError:
        raise DocumentError(f"{origin} is nested too deeply") from None
    except (ValueError, yaml.YAMLError) as error:
        raise DocumentError(f"{origin} is neither JSON nor YAML: {error}") from error


def no_mapping(found: object, kind: str, origin: str) -> DocumentError:
    """An error for a document that is something else than names with values."""
    names = {list: "a list", str: "a text", type(None): "empty", bool: "a word", int: "a number"}
    seen = names.get(type(found), "a single value")
    return DocumentError(f"{origin} holds no {kind}: it is {seen}, names with values are expected")


PartT = TypeVar("PartT", bound=Part)


def validated(model: type[PartT], document: object, kind: str, origin: str) -> PartT:
    """A document of this version, checked.

    Raises DocumentError naming `origin` and the path of the wrong key, or a version that is not known.
    """
    if not isinstance(document, Mapping):
        raise no_mapping(document, kind, origin)
    version = document.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise DocumentError(
            f"{origin}: schema_version",
            seen=version,
            allowed=f"1 to {SCHEMA_VERSION}",
            hint="a newer one needs a newer cputune",
        )
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        seen = first["input"]
        raise DocumentError(
            f"{origin}: {path}: {first['msg']}", seen=None if isinstance(seen, Mapping | list) else seen
        ) from error
