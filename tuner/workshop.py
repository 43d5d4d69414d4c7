"""What a search works with: the model's variants as files, scorers for quality, ids for measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probes.machine import Machine
from profiles.records import Conditions, QualityKey, VariantRecord
from profiles.records import Measurement as MeasurementKey
from profiles.store import Store
from profiles.vocabulary import Config, ModelInfo, Quality, Setting, Workload
from tuner import engines
from tuner.engines.base import Availability, Engine, Recipe
from tuner.errors import ModelFileError
from tuner.events import Observer
from tuner.home import Home
from tuner.measurement import placement, quality
from tuner.measurement.bench import Bench
from tuner.measurement.isolation import Deadlines, Worker
from tuner.measurement.mapping import PatientBench
from tuner.models.source import Source
from tuner.models.variants import Variant, VariantCache

MAKING_S = 1800.0
"""A variant that takes longer to make is given up."""
SCORING_S = 600.0


@dataclass
class Workshop:
    """One model on one machine. Variants and references are made when they are wanted, and kept."""

    machine: Machine
    source: Source
    model: ModelInfo
    workload: Workload
    home: Home
    store: Store
    available: Mapping[str, Availability]
    observer: Observer
    remaining_s: Callable[[], float] = lambda: math.inf
    """What is left of a budget; making a variant and judging quality end with it."""
    making_s: Callable[[], float] = lambda: math.inf
    """What making a variant may take of it."""
    _variants: dict[tuple[str, str], Variant] = field(default_factory=dict)
    _cache: VariantCache = field(init=False)
    _bench: PatientBench | None = None

    def __post_init__(self) -> None:
        self._cache = VariantCache(self.home.variants)

    def engine(self, name: str) -> Engine:
        """An engine's description."""
        return engines.get(name)

    def build(self, engine: str) -> str:
        """The engine's build identity."""
        return self.available[engine].identity

    def variant(self, engine: str, label: str) -> Variant:
        """A variant, made if it is not in the cache; raises ModelFileError when it can't be."""
        known = self._variants.get((engine, label))
        if known is None:
            description = self.engine(engine)
            recipe = next((r for r in self._recipes(description) if r.label == label), None)
            if recipe is None:
                raise ModelFileError(f"{engine} makes no variant '{label}' of {self.model.name}")
            self._check_memory(recipe)
            known = self._cache.ensure(
                description,
                self.source,
                self.model,
                recipe,
                build=self.build(engine),
                deadline_s=min(MAKING_S, self.remaining_s(), self.making_s()),
                on_event=self.observer,
            )
            self._variants[engine, label] = known
            self.store.save_variant(
                VariantRecord(
                    model_digest=self.model.digest,
                    engine=engine,
                    label=label,
                    digest=known.digest,
                    tensor_mix=dict(known.tensor_mix),
                    bits_per_weight=known.bits_per_weight,
                    file_bytes=known.file_bytes,
                    recipe=dict(recipe.parameters),
                )
            )
        return known

    def _check_memory(self, recipe: Recipe) -> None:
        """Nothing is made that could not be opened here, the quality reference no more than a variant."""
        room = self.machine.effective.memory_bytes
        if room is not None and not recipe.is_source and recipe.estimated_bytes > room:
            raise ModelFileError(
                f"{recipe.label} of {self.model.name} is not made: it needs"
                f" {recipe.estimated_bytes >> 20} MiB of memory, {room >> 20} MiB are free"
            )

    def _recipes(self, engine: Engine) -> tuple[Recipe, ...]:
        recipes = {r.label: r for r in (*engine.recipes(self.model), engine.reference(self.model))}
        return tuple(recipes.values())

    def lacking(self, engine: Engine, recipe: Recipe) -> str | None:
        """Why a variant can't be made here: the packages that it takes; None when it can."""
        return self._cache.lacking(engine, self.model, recipe, self.build(engine.name))

    def is_made(self, engine: str, label: str) -> bool:
        """Whether a variant is there without being made."""
        description = self.engine(engine)
        recipe = next((r for r in self._recipes(description) if r.label == label), None)
        if recipe is None:
            return False
        build = self.build(engine)
        return recipe.is_source or self._cache.path(description, self.model, recipe, build).exists()

    def path(self, config: Config) -> Path:
        """The file or folder that a configuration runs on."""
        return self.variant(config.engine, config.variant).path

    def bench(self, *, seed: int, deadlines: Deadlines | None = None) -> Bench:
        """A bench for this model and workload; no wait on it outlasts `remaining_s`."""
        self._bench = PatientBench(
            self.machine,
            self.model,
            self.workload,
            self.engine,
            self.path,
            seed=seed,
            log_directory=self.home.logs,
            # Past this the kernel would kill something, and not always the worker.
            memory_bytes=self.machine.effective.memory_bytes,
            remaining_s=self._left_s,
            deadlines=deadlines,
            observer=self.observer,
        )
        return self._bench

    def _left_s(self) -> float:
        return self.remaining_s()

    def as_loaded(self, config: Config) -> Config:
        """A configuration as the bench really loads it: a hung load turns `mmap`."""
        return self._bench.as_loaded(config) if self._bench else config

    def identify(self, config: Config, conditions: Conditions = "quiet") -> MeasurementKey:
        """What a configuration's samples are filed under."""
        return MeasurementKey(
            fingerprint=self.machine.fingerprint,
            engine_build=self.build(config.engine),
            variant_digest=self.variant(config.engine, config.variant).digest,
            config=config,
            workload=self.workload,
            conditions=conditions,
        )

    def setting(self, conditions: Conditions) -> dict[str, object]:
        """What samples must have in common to be compared: builds, kernel, conditions."""
        builds = {name: self.build(name) for name in self.available}
        return {"builds": builds, "kernel": self.machine.kernel, "conditions": conditions}

    def close(self) -> None:
        """Let the variants' files go."""
        self._cache.close()

    # --- quality -------------------------------------------------------------------------------

    def quality_measure(self) -> Callable[[Config], Quality] | None:
        """How quality is measured; None for random weights, whose answers mean nothing."""
        return None if self.model.weights_are_random else self.quality

    def quality(self, key: Config) -> Quality:
        """The quality of a configuration's quality-affecting part, from the store or measured now.

        Raises WorkerError or ModelFileError where it can't be measured.
        """
        name = self._quality_key(key)
        known = self.store.quality(name)
        if known is None:
            known = quality.judge(
                self._ask_reference, lambda op, payload: self._ask(key, op, payload), self._reference()
            )
            self.store.save_quality(name, known)
        return known

    def _quality_key(self, key: Config) -> QualityKey:
        return QualityKey(
            variant_digest=self.variant(key.engine, key.variant).digest,
            settings=key.settings,
            reference_digest=self._reference_name(),
            text_version=str(quality.TEXT_VERSION),
            engine_build=self.build(key.engine),
        )

    def _reference_engine(self) -> Engine:
        """The engine that the reference is computed on: the first that runs, the same for all candidates."""
        return self.engine(next(iter(self.available)))

    def _reference_name(self) -> str:
        engine = self._reference_engine()
        recipe = engine.reference(self.model)
        return quality.quality_key(
            engine.name, self.build(engine.name), self.model.digest, dict(recipe.parameters)
        )

    def _reference(self) -> Path:
        return self.home.references / f"{self._reference_name()}.npz"

    def _ask_reference(self, op: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        engine = self._reference_engine()
        given = engine.default(self.machine, self.model, self.workload)
        judged = {
            d.name: d.default
            for d in engine.dimensions(self.machine, self.model, self.workload)
            if d.affects_quality
        }
        label = engine.reference(self.model).label
        return self._ask(Config.of(given.engine, label, judged), op, payload)

    def _ask(self, key: Config, op: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """One operation of a scorer, in a process of its own."""
        engine = self.engine(key.engine)
        deadlines = Deadlines()
        self.home.logs.mkdir(parents=True, exist_ok=True)
        with Worker.start(
            engine,
            role="scorer",
            # Nothing is timed here, and spinning threads would fight with whatever else runs.
            environment=placement.environment(key.with_settings(wait_policy="passive")),
            log_path=self.home.logs / "scorer.log",
            deadline_s=deadlines.start_s,
        ) as worker:
            worker.load(self.path(key), self._safe(engine) | key.as_dict(), deadlines)
            return worker.request(op, payload, min(SCORING_S, self.remaining_s()))

    def _safe(self, engine: Engine) -> dict[str, Setting]:
        """Other values for the settings whose value kills this build."""
        unsafe = self.available[engine.name].unsafe
        return {
            d.name: next(value for value in d.values if (d.name, value) not in unsafe)
            for d in engine.dimensions(self.machine, self.model, self.workload)
            if d.name in dict(unsafe)
        }
