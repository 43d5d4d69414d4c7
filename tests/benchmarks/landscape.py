"""A recorded landscape: round times of every phase part of a space, so that a search can be replayed.

The file is gzipped JSON. `schema_version`, `machine`, `model`, `workload` and `engines` rebuild the space.
`phases` holds for prefill and decode a table: `rows` are [engine, variant, {setting: value}], the settings
of the other phase left out (`Space.phase_part`), and `rounds_ms` one list a row: TTFT, or a round's median
gap between tokens, in milliseconds and in the order of measuring; `at_s` has the seconds since 1970 when each
was measured, where the recorder kept them. `overhead_s` has, by "engine/variant" and
the scope that was switched ("none" to "process"), the median seconds that a measurement took beyond its
rounds: starting, loading, a new context, the warm-up. `quality` lists [engine, variant, settings, verdict]
by quality key, the verdict an object of `Quality` or null where it could not be measured, and `quality_s`
what one took; the first also makes the reference, `reference_s`.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median_high
from typing import Any, Self

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Quality, Role, Workload
from tuner import engines
from tuner.engines.base import Dimension, Phase, Scope
from tuner.search.space import EngineSpace, Space

SCHEMA_VERSION = 1
Samples = dict[Phase, dict[Config, list[float]]]
USUAL_OVERHEAD_S = {"none": 0.005, "run": 0.01, "context": 0.05, "load": 0.9, "process": 0.9}
"""For a scope that was never seen switched."""


@dataclass
class Landscape:
    """A space with samples for all of its phase parts; `add` and `save` let it grow."""

    space: Space
    builds: Mapping[str, str] = field(default_factory=dict)
    samples_ms: Samples = field(default_factory=lambda: {phase: {} for phase in Phase})
    at_s: Samples = field(default_factory=lambda: {phase: {} for phase in Phase})
    """When each round was measured; empty where nobody kept it."""
    overhead_s: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    quality: dict[Config, Quality | None] = field(default_factory=dict)
    quality_s: float = 3.0
    reference_s: float = 4.0
    checks: list[dict[str, float]] = field(default_factory=list)
    """Full configurations measured whole: predicted and measured response, in milliseconds."""

    def wanted(self) -> dict[Phase, list[Config]]:
        """What a complete landscape holds: every phase part, those of defaults and rules of thumb too."""
        import random

        listed = {phase: self.space.listed(phase, random.Random(0)) for phase in Phase}
        extra = list(self._extra())
        return {
            phase: list(
                {self.space.phase_part(config, phase): config for config in (*extra, *listed[phase])}.values()
            )
            for phase in Phase
        }

    def _extra(self) -> Iterable[Config]:
        for part in self.space.engines:
            yield self.space.default(part.engine.name)
            for start in self.space.starts(part.engine.name):
                for variant in part.variants:
                    config = self.space.make(part.engine.name, variant, start)
                    if config is not None:
                        yield config

    def add(
        self, config: Config, phase: Phase, rounds_ms: Iterable[float], at_s: Iterable[float] = ()
    ) -> None:
        """Rounds of a configuration in one phase, and when each was measured."""
        part = self.space.phase_part(config, phase)
        self.samples_ms[phase].setdefault(part, []).extend(rounds_ms)
        self.at_s[phase].setdefault(part, []).extend(at_s)

    def add_overhead(self, config: Config, scope: Scope | None, seconds: float) -> None:
        """What a measurement took beyond its rounds."""
        by_scope = self.overhead_s.setdefault(f"{config.engine}/{config.variant}", {})
        by_scope.setdefault(scope_name(scope), []).append(seconds)

    def overhead(self, config: Config, scope: Scope | None) -> float:
        """The median seconds to bring a configuration up across a scope: its variant's, else its engine's,
        else anybody's. A load starts a process too: where one of both was not seen, the other stands in."""
        name = scope_name(scope)
        alike = {"process": ("process", "load"), "load": ("load", "process")}.get(name, (name,))
        kin = (
            [f"{config.engine}/{config.variant}"],
            [label for label in self.overhead_s if label.startswith(f"{config.engine}/")],
            list(self.overhead_s),
        )
        for labels, one in itertools.product(kin, alike):
            seen = [s for label in labels for s in self.overhead_s.get(label, {}).get(one, ())]
            if seen:
                return median_high(seen)
        return USUAL_OVERHEAD_S[name]

    def save(self, path: Path) -> None:
        """Write the whole file anew, beside it first."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "machine": self.space.machine.to_json(),
            "model": self.space.model.to_json(),
            "workload": self.space.workload.to_json(),
            "builds": dict(self.builds),
            "engines": [_engine_document(part) for part in self.space.engines],
            "phases": {
                phase.value: {
                    "rows": [[c.engine, c.variant, c.as_dict()] for c in table],
                    "rounds_ms": [[float(f"{value:.5g}") for value in row] for row in table.values()],
                    "at_s": [[round(at_s, 1) for at_s in self.at_s[phase].get(part, ())] for part in table],
                }
                for phase, table in self.samples_ms.items()
            },
            "overhead_s": {
                label: {name: [round(self_s, 4) for self_s in seconds] for name, seconds in scopes.items()}
                for label, scopes in self.overhead_s.items()
            },
            "quality": [
                [c.engine, c.variant, c.as_dict(), asdict(q) if q else None] for c, q in self.quality.items()
            ],
            "quality_s": self.quality_s,
            "reference_s": self.reference_s,
            "checks": self.checks,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".part")
        beside.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file; ValueError for one of another version."""
        document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        if document["schema_version"] != SCHEMA_VERSION:
            raise ValueError(
                f"{path}: schema_version {document['schema_version']}, known is {SCHEMA_VERSION}"
            )
        space = Space(
            Machine.from_json(document["machine"]),
            ModelInfo.from_json(document["model"]),
            Workload(**document["workload"]),
            tuple(_engine_space(part) for part in document["engines"]),
        )
        return cls(
            space=space,
            builds=document["builds"],
            samples_ms={phase: _by_part(document, phase, "rounds_ms") for phase in Phase},
            at_s={phase: _by_part(document, phase, "at_s") for phase in Phase},
            overhead_s=document["overhead_s"],
            quality={
                Config.of(engine, variant, settings): Quality(**found) if found else None
                for engine, variant, settings, found in document["quality"]
            },
            quality_s=document["quality_s"],
            reference_s=document["reference_s"],
            checks=document["checks"],
        )


def _by_part(document: Mapping[str, Any], phase: Phase, name: str) -> dict[Config, list[float]]:
    table = document["phases"][phase.value]
    rows = [Config.of(*row) for row in table["rows"]]
    values = table.get(name) or [[] for _ in rows]
    return {row: list(own) for row, own in zip(rows, values, strict=True)}


def scope_name(scope: Scope | None) -> str:
    """The scope's name in a file."""
    return "none" if scope is None else scope.name.lower()


def _engine_document(part: EngineSpace) -> dict[str, object]:
    return {
        "name": part.engine.name,
        "variants": list(part.variants),
        "dimensions": [
            {
                "name": d.name,
                "values": list(d.values),
                "default": d.default,
                "scope": d.scope.name,
                "role": d.role.value,
                "phases": sorted(phase.value for phase in d.phases),
                "affects_quality": d.affects_quality,
            }
            for d in part.dimensions
        ],
    }


def _engine_space(document: Mapping[str, Any]) -> EngineSpace:
    dimensions = tuple(
        Dimension(
            d["name"],
            tuple(d["values"]),
            d["default"],
            Scope[d["scope"]],
            Role(d["role"]),
            frozenset(map(Phase, d["phases"])),
            d["affects_quality"],
        )
        for d in document["dimensions"]
    )
    return EngineSpace(engines.get(document["name"]), tuple(document["variants"]), dimensions)
