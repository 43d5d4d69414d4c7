"""Host-wide dimensions: how a worker process waits and where it runs, whatever its engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from probes.machine import Machine
from profiles.vocabulary import Config, Setting
from tuner.engines.base import Dimension, Engine, Role, Scope
from tuner.errors import UsageError

WAIT_POLICIES: Mapping[str, Mapping[str, str]] = {
    "default": {},
    # libgomp's default spins for milliseconds; this is long enough for the gap between two layers.
    "short_spin": {"GOMP_SPINCOUNT": "20000"},
    "passive": {"OMP_WAIT_POLICY": "passive"},
}
_ENVIRONMENTS: Mapping[str, Mapping[str, Mapping[str, str]]] = {"wait_policy": WAIT_POLICIES}
_AFFINITIES: Mapping[str, Callable[[Setting, Machine], tuple[int, ...] | None]] = {}
"""Setting -> the CPUs that its value means on a machine; None leaves the inherited ones."""

NAMES = frozenset({*_ENVIRONMENTS, *_AFFINITIES})
"""The settings that are not the engine's."""

# The caller's own tuning would be measured as if it were the engine's default.
_CONTROLLED = ("OMP_", "GOMP_", "KMP_", "LIBOMP_", "MKL_", "OPENBLAS_", "GGML_", "ORT_")
_ALWAYS = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_OFFLINE": "1"}
"""No network and no telemetry at measuring time."""


def dimensions(engine: Engine) -> tuple[Dimension, ...]:
    """What of this applies to an engine."""
    if not engine.has_openmp:
        return ()
    return (Dimension("wait_policy", tuple(WAIT_POLICIES), "default", Scope.PROCESS, Role.PLACEMENT),)


def environment(config: Config, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a worker: `base` (default: the caller's) with threading variables controlled.

    Raises UsageError for an unknown value of one of our settings.
    """
    inherited = os.environ if base is None else base
    found = {name: value for name, value in inherited.items() if not name.startswith(_CONTROLLED)}
    found |= _ALWAYS
    for setting, values in _ENVIRONMENTS.items():
        value = config.get(setting)
        if value is None:
            continue
        if value not in values:
            raise UsageError(f"{setting} '{value}' is unknown: allowed are {', '.join(values)}")
        found |= values[str(value)]
    return found


def affinity(config: Config, machine: Machine) -> tuple[int, ...] | None:
    """The CPUs that a worker is bound to; None: those it inherits."""
    for setting, cpus_of in _AFFINITIES.items():
        value = config.get(setting)
        if value is not None:
            return cpus_of(value, machine)
    return None
