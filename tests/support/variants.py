"""The demo model in every variant of every engine, made when asked for, and how good each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles.vocabulary import Config, ModelInfo, Quality, Setting
from tuner import engines
from tuner.measurement import placement, quality
from tuner.measurement.isolation import Deadlines, Worker
from tuner.models.source import Source
from tuner.models.variants import VariantCache

PASSIVE = {"wait_policy": "passive"}


@dataclass
class Variants:
    """The demo model on one machine: variants by engine and label, and how good they are."""

    folder: Path
    source: Source
    model: ModelInfo
    cache: VariantCache
    judged: dict[tuple[str, str], Quality] = field(default_factory=dict)

    def path(self, engine: str, label: str) -> Path:
        """A variant, made now if it was not made before."""
        described = engines.get(engine)
        recipes = (*described.recipes(self.model), described.reference(self.model))
        recipe = next(recipe for recipe in recipes if recipe.label == label)
        made = self.cache.ensure(
            described, self.source, self.model, recipe, build="test build 1", deadline_s=240.0
        )
        return made.path

    def quality(self, engine: str, label: str) -> Quality:
        """Against llama.cpp's f16, over the packaged texts."""
        if (engine, label) not in self.judged:
            self.judged[engine, label] = quality.judge(
                lambda op, payload: self.ask("llama_cpp", self.path("llama_cpp", "f16"), op, payload),
                lambda op, payload: self.ask(engine, self.path(engine, label), op, payload),
                self.folder / "reference.npz",
            )
        return self.judged[engine, label]

    def ask(self, engine: str, path: Path, op: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """One operation of an engine's scorer."""
        with start(engine, "scorer", self.folder) as worker:
            settings: dict[str, Setting] = {"repack": False} if engine == "llama_cpp" else {}
            worker.load(path, settings, Deadlines())
            return worker.request(op, payload, 240.0)


def start(engine: str, role: Any, folder: Path) -> Worker:
    """A worker whose threads don't fight with what else runs."""
    return Worker.start(
        engines.get(engine),
        role=role,
        environment=placement.environment(Config.of(engine, "any", PASSIVE)),
        log_path=folder / f"{engine}-{role}.log",
        deadline_s=60.0,
    )
