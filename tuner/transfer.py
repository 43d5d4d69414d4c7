"""An engine's configurations on a machine that is not at hand: what was found elsewhere, or its default."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from probes.machine import Machine
from profiles.carry import carried_over
from profiles.nearest import Cpus
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload
from tuner.engines.base import Dimension, Engine
from tuner.errors import NothingFeasibleError
from tuner.measurement import placement
from tuner.narrowing import kv_cache_bytes


@dataclass(frozen=True)
class Place:
    """One engine on one machine for a model and a workload; nothing of it runs."""

    engine: Engine
    machine: Machine
    model: ModelInfo
    workload: Workload

    def brought(self, found: Config, there: Machine | None) -> tuple[Config, tuple[str, ...], str | None]:
        """A configuration found on the machine `there`: as it is here, what changed, why it can't be used.

        What it does not say is the default's; None for the last where it can be used.
        """
        cpus = None if there is None else Cpus.of(there)
        carried, changes = carried_over(found, self.described, cpus, Cpus.of(self.machine))
        settings = {**self.safe, **carried.as_dict()}
        added = [
            f"{name} was not set there: the default, {value}"
            for name, value in settings.items()
            if found.get(name) is None
        ]
        config = Config.of(found.engine, found.variant, settings)
        return self._canonical(config), (*changes, *added), self.problem(config)

    def default(self) -> tuple[Config, tuple[str, ...]]:
        """The engine's default with the threads of its first rule of thumb, and why larger variants can't be.

        Raises NothingFeasibleError where no variant fits.
        """
        thumb = next(iter(self.engine.starts(self.machine, self.model, self.workload)), {})
        settings = self.safe | {name: value for name, value in thumb.items() if name in self._thread_counts}
        problems: list[str] = []
        for recipe in self.engine.recipes(self.model):
            config = Config.of(self.engine.name, recipe.label, settings)
            problem = self.problem(config)
            if problem is None:
                return self._canonical(config), tuple(problems)
            problems.append(problem)
        raise NothingFeasibleError(f"{self.model.name} can't run there: {problems[-1]}")

    def own_default(self, variant: str) -> tuple[Config, str | None]:
        """The engine's default here, within the CPUs that may be used; why it can't be used, or None."""
        config = self._canonical(Config.of(self.engine.name, variant, self.safe))
        return config, self.problem(config)

    def problem(self, config: Config) -> str | None:
        """Why a configuration can't run on the machine; None when it can."""
        sizes = {recipe.label: recipe.estimated_bytes for recipe in self.engine.recipes(self.model)}
        if config.variant not in sizes:
            return f"{self.engine.name} makes no variant {config.variant} of this model"
        return (
            self._memory_problem(config.variant, sizes[config.variant])
            or self.engine.violation(config, self.machine, self.model, self.workload)
            or placement.violation(config, self.machine, self.described)
        )

    @cached_property
    def described(self) -> tuple[Dimension, ...]:
        """The engine's own settings and the host-wide ones."""
        own = self.engine.dimensions(self.machine, self.model, self.workload)
        return (*own, *placement.dimensions(self.engine, self.machine))

    @cached_property
    def safe(self) -> dict[str, Setting]:
        """The default's settings, with no more threads than may run at once."""
        own = self.engine.default(self.machine, self.model, self.workload).as_dict()
        settings = {d.name: d.default for d in self.described} | own
        most = self.machine.effective.cpu_count
        counts = {name: settings[name] for name in self._thread_counts}
        return settings | {name: min(n, most) for name, n in counts.items() if isinstance(n, int)}

    @property
    def _thread_counts(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.described if d.role is Role.THREADS)

    def _canonical(self, config: Config) -> Config:
        return self.engine.canonical(config, self.model, self.workload)

    def _memory_problem(self, label: str, size_bytes: int) -> str | None:
        room = self.machine.effective.memory_bytes
        needed = size_bytes + kv_cache_bytes(self.model, self.workload)
        if room is None or needed <= room:
            return None
        return f"{label} needs {needed / 2**30:.2f} GiB, {room / 2**30:.2f} GiB of memory are free there"
