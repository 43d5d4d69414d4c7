"""A small simulated space."""

import pytest

from probes.effective import Effective
from probes.machine import Machine
from profiles.vocabulary import WORKLOADS
from tests.support.surface import space_of
from tuner.search.space import Space


@pytest.fixture
def machine() -> Machine:
    return Machine(fingerprint="f0", effective=Effective(cpus=(0, 1, 2, 3), cpu_count=4))


@pytest.fixture
def space(machine: Machine) -> Space:
    return space_of(machine, WORKLOADS["chat"])
