"""The nouns of tuning as frozen values: model, workload, configuration, objective, limit, status."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Self

Setting = bool | int | float | str
"""The value of one setting of a configuration."""


class TrialStatus(StrEnum):
    """How a trial ended; everything from `crash` on is a failure with a reason."""

    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    INFEASIBLE = "infeasible"
    CRASH = "crash"
    ILLEGAL_INSTRUCTION = "illegal_instruction"
    OUT_OF_MEMORY = "out_of_memory"
    LOAD_TIMEOUT = "load_timeout"
    RUN_TIMEOUT = "run_timeout"
    PROTOCOL = "protocol"
    INVALID = "invalid"
    ENGINE_ERROR = "engine_error"
    INTERRUPTED = "interrupted"

    @property
    def failed(self) -> bool:
        """Whether nothing usable was measured."""
        return self not in _NOT_FAILED


_NOT_FAILED = frozenset(
    {TrialStatus.RUNNING, TrialStatus.COMPLETE, TrialStatus.PRUNED, TrialStatus.INFEASIBLE}
)


@dataclass(frozen=True)
class ModelInfo:
    """A model as its file describes it; sizes in tokens, elements or bytes as named.

    `digest` identifies the weights (hex); `tensor_mix` maps a tensor type to the bytes stored in it.
    """

    name: str
    digest: str
    format: str
    architecture: str
    parameter_count: int
    layer_count: int
    hidden_size: int
    head_count: int
    kv_head_count: int
    key_length: int
    value_length: int
    vocabulary_size: int
    context_length: int
    file_bytes: int
    tensor_mix: tuple[tuple[str, int], ...]
    bits_per_weight: float
    sliding_window: int | None = None
    has_chat_template: bool = False
    has_tokenizer: bool = True
    weights_are_random: bool = False

    def to_json(self) -> dict[str, object]:
        """Plain values, for a document or a column."""
        return {**self.__dict__, "tensor_mix": dict(self.tensor_mix)}

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """The inverse of `to_json`; unknown keys are dropped."""
        names = cls.__dataclass_fields__
        known: dict[str, Any] = {name: document[name] for name in names if name in document}
        return cls(**{**known, "tensor_mix": tuple(sorted(known["tensor_mix"].items()))})


@dataclass(frozen=True)
class Workload:
    """What is asked of the model: `streams` concurrent requests of exact lengths in tokens."""

    name: str
    prompt_tokens: int
    output_tokens: int
    streams: int = 1
    objective: str = "response_ms"

    @property
    def context_tokens(self) -> int:
        """Tokens that one stream holds at its end."""
        return self.prompt_tokens + self.output_tokens

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return dict(self.__dict__)


WORKLOADS: Mapping[str, Workload] = {
    w.name: w
    for w in (
        Workload("chat", 128, 128),
        Workload("rag", 1024, 64),
        Workload("writer", 32, 256),
        Workload("long", 4096, 128),
        Workload("batch", 128, 128, streams=8, objective="decode_tps"),
    )
}


class Role(StrEnum):
    """What a setting is about; decides how another machine's value is re-mapped (`profiles.carry`)."""

    THREADS = "threads"
    BATCH = "batch"
    KV = "kv"
    WEIGHTS = "weights"
    PLACEMENT = "placement"


@dataclass(frozen=True)
class Config:
    """An engine, a variant of the model and every setting, in one canonical order."""

    engine: str
    variant: str
    settings: tuple[tuple[str, Setting], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", tuple(sorted(self.settings)))

    @classmethod
    def of(cls, engine: str, variant: str, settings: Mapping[str, Setting]) -> Self:
        """A configuration from a mapping of settings."""
        return cls(engine, variant, tuple(settings.items()))

    def as_dict(self) -> dict[str, Setting]:
        """The settings as a mapping."""
        return dict(self.settings)

    def get(self, name: str) -> Setting | None:
        """The value of a setting; None where the configuration does not have it."""
        return dict(self.settings).get(name)

    def with_settings(self, **changes: Setting) -> Self:
        """A copy with some settings replaced or added."""
        return replace(self, settings=tuple({**dict(self.settings), **changes}.items()))

    def without(self, names: Iterable[str]) -> Self:
        """A copy that lacks the named settings."""
        gone = frozenset(names)
        return replace(self, settings=tuple(pair for pair in self.settings if pair[0] not in gone))

    @property
    def key(self) -> str:
        """A short digest: equal exactly for equal configurations."""
        text = json.dumps([self.engine, self.variant, self.settings], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"engine": self.engine, "variant": self.variant, "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self:
        """The inverse of `to_json`."""
        settings = document["settings"]
        assert isinstance(settings, Mapping)
        return cls.of(str(document["engine"]), str(document["variant"]), settings)


@dataclass(frozen=True)
class Objective:
    """A metric to make as small or as large as possible."""

    metric: str
    direction: Literal["minimize", "maximize"] = "minimize"


@dataclass(frozen=True)
class Limit:
    """A bound that a published profile keeps: `metric` `operator` `value`."""

    metric: str
    operator: Literal["<=", ">="]
    value: float

    def violation(self, seen: float) -> float:
        """How far `seen` is on the wrong side, in the metric's unit; 0 or less is kept."""
        return seen - self.value if self.operator == "<=" else self.value - seen

    def __str__(self) -> str:
        return f"{self.metric}{self.operator}{self.value:g}"


@dataclass(frozen=True)
class QualityLevel:
    """What a variant may lose against the reference, on 95 % bounds (docs/measuring.md)."""

    name: str
    max_kl_divergence: float
    min_top1_agreement: float


QUALITY_LEVELS: Mapping[str, QualityLevel] = {
    level.name: level
    for level in (
        QualityLevel("near-lossless", 0.02, 0.97),
        QualityLevel("balanced", 0.1, 0.90),
        QualityLevel("any", float("inf"), 0.0),
    )
}


@dataclass(frozen=True)
class Quality:
    """Agreement of a configuration with the reference, teacher-forced over `positions` tokens.

    `kl_divergence_high` is the upper and `top1_agreement_low` the lower 95 % block-bootstrap bound.
    """

    kl_divergence: float
    kl_divergence_high: float
    top1_agreement: float
    top1_agreement_low: float
    perplexity_ratio: float
    positions: int

    def meets(self, level: QualityLevel) -> bool:
        """Whether both bounds keep the level."""
        return (
            self.kl_divergence_high <= level.max_kl_divergence
            and self.top1_agreement_low >= level.min_top1_agreement
        )


@dataclass(frozen=True)
class Interval:
    """A ratio's estimate with the limits of its confidence interval."""

    estimate: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class RoundSamples:
    """The samples of one measured round, in the round's own clock.

    `ttft_ms` has one value a stream; `gaps_ms` holds each stream's gaps between successive tokens;
    `response_ms` is present when the round ran the whole workload. `dropped` names the contamination
    that makes the round unusable, None for a clean one; `facts` are per-round counters by name.
    """

    kind: Literal["short", "full"]
    ttft_ms: tuple[float, ...]
    gaps_ms: tuple[tuple[float, ...], ...]
    response_ms: tuple[float, ...] = ()
    wall_ms: float = 0.0
    dropped: str | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
