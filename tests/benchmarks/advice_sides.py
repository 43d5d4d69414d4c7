"""What is compared to check an advice: two sides that differ in it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from probes.machine import Machine
from profiles.vocabulary import Setting
from tuner.measurement import placement

LLAMA_CPP, TRANSFORMERS, ONNX, OPENVINO = "llama_cpp", "transformers", "onnxruntime", "openvino"
THREADS: Mapping[str, tuple[str, ...]] = {
    LLAMA_CPP: ("n_threads", "n_threads_batch"),
    TRANSFORMERS: ("n_threads", "n_threads_batch"),
    ONNX: ("intra_op_num_threads",),
    OPENVINO: ("inference_num_threads",),
}


class NothingToCompareError(Exception):
    """On this machine the advice and its opposite are the same."""


@dataclass(frozen=True)
class Side:
    """A configuration as a file for `cputune compare` holds it; the default's where nothing is said."""

    settings: Mapping[str, Setting]
    variant: str = "source"
    engine: str = LLAMA_CPP

    def document(self) -> dict[str, object]:
        """What the file holds."""
        return {"engine": self.engine, "variant": self.variant, "settings": dict(self.settings)}


Sides = tuple[Side, Side]
"""Without the advice, with it."""


def cores_of(machine: Machine) -> int:
    """The physical cores that may be used."""
    every = machine.effective.cpu_count
    return min(machine.physical_cores or every, every)


def threads(count: int) -> dict[str, Setting]:
    """One number of threads for both phases, as a --threads flag sets it."""
    return {"n_threads": count, "n_threads_batch": count}


def against_cores(count: Callable[[Machine], int]) -> Callable[[Machine], Sides]:
    """A number of threads against one a physical core."""

    def sides(machine: Machine) -> Sides:
        cores, advised = cores_of(machine), count(machine)
        if cores == advised:
            raise NothingToCompareError(f"both are {cores} here")
        return Side(threads(cores)), Side(threads(advised))

    return sides


def variants(before: str, after: str) -> Callable[[Machine], Sides]:
    """Two variants under the same settings."""
    return lambda machine: (
        Side(threads(cores_of(machine)), before),
        Side(threads(cores_of(machine)), after),
    )


def settings(before: Mapping[str, Setting], after: Mapping[str, Setting]) -> Callable[[Machine], Sides]:
    """Two values of something, all else alike."""
    return lambda machine: (
        Side({**threads(cores_of(machine)), **before}),
        Side({**threads(cores_of(machine)), **after}),
    )


def placed(machine: Machine) -> Sides:
    """Left to the scheduler, against the first placement that is a choice here."""
    choices = placement.choices(machine)
    if not choices:
        raise NothingToCompareError("each CPU is a core of its own and there is one NUMA node")
    name, cpus = next(iter(choices.items()))
    count = threads(min(len(cpus), cores_of(machine)))
    return Side(count), Side({**count, "placement": name})


def engines(before: Side, after: Side) -> Callable[[Machine], Sides]:
    """Two engines, or two ways of one, with a thread for each core."""

    def with_threads(side: Side, machine: Machine) -> Side:
        counts: dict[str, Setting] = dict.fromkeys(THREADS[side.engine], cores_of(machine))
        return replace(side, settings={**counts, **side.settings})

    return lambda machine: (with_threads(before, machine), with_threads(after, machine))


PYTORCH = Side({}, "f32", TRANSFORMERS)
"""The demo model as articles begin: 32-bit floats with a KV cache."""
