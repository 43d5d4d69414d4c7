"""A simulated engine that also maps its model file or reads it; loading one of both ways hangs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner.engines.base import Dimension, Scope
from tuner.engines.simulated.describe import Simulated
from tuner.engines.simulated.session import SimulatedSession

HANGS = "CPUTUNE_TEST_HANGING_WAYS"
"""An environment variable with the ways that hang: "mapped", "read", or both."""


class MappedSession(SimulatedSession):
    """Hangs in `load` as asked, and tells how it loaded."""

    _mapped: Setting = True

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """As the simulated engine's, once it does not hang."""
        self._mapped = settings["mmap"]
        if ("mapped" if self._mapped else "read") in os.environ.get(HANGS, "").split():
            threading.Event().wait()
        super().load(path, {name: value for name, value in settings.items() if name != "mmap"})

    def effective(self) -> Mapping[str, Setting]:
        """With the way of loading."""
        return {**super().effective(), "mmap": self._mapped}


class MappedEngine(Simulated):
    """The simulated engine with a setting `mmap` at its default alone, as llama.cpp has it."""

    session = "tests.support.mapped:MappedSession"

    def dimensions(self, machine: Machine, model: ModelInfo, workload: Workload) -> tuple[Dimension, ...]:
        """The engine's own and `mmap`."""
        own = super().dimensions(machine, model, workload)
        return (*own, Dimension("mmap", (True,), True, Scope.LOAD, Role.WEIGHTS))

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """The engine's own, mapped."""
        return super().default(machine, model, workload).with_settings(mmap=True)
