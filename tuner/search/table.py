"""One phase's part of the space as rows, sorted into groups that combine with the other phase."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from profiles.vocabulary import Config
from tuner.engines.base import Phase
from tuner.search.ledger import Ledger
from tuner.search.space import Space

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

ENOUGH_ROUNDS = 2
"""A single round may have been disturbed unnoticed: a row that has no more may be proposed again."""


class PhaseTable:
    """A row for each configuration of `Space.listed`, the rows of a group one after another.

    `group` numbers each row's group, the same in both phases; `lost` marks rows that failed.
    """

    def __init__(self, space: Space, phase: Phase, configs: Sequence[Config], group: Sequence[int]) -> None:
        order = np.argsort(group, kind="stable")
        self.phase = phase
        self.configs = [configs[row] for row in order]
        self.group = np.asarray(group, dtype=np.intp)[order]
        self.starts = np.flatnonzero(np.diff(self.group, prepend=-1))
        self.rows = {space.phase_part(config, phase): row for row, config in enumerate(self.configs)}
        self.lost: Mask = np.zeros(len(configs), dtype=bool)

    def known(self, ledger: Ledger) -> Mask:
        """The rows with enough clean rounds to need no other look."""
        known: Mask = np.zeros(len(self.configs), dtype=bool)
        for part, values in ledger.samples_ms(self.phase).items():
            if len(values) >= ENOUGH_ROUNDS and part in self.rows:
                known[self.rows[part]] = True
        return known

    def least(self, values: Floats) -> Floats:
        """The least value of each group, of shape (draws, groups) for values of shape (draws, rows)."""
        return np.minimum.reduceat(values, self.starts, axis=1)

    def span(self, group: int) -> slice:
        """The rows of a group."""
        end = self.starts[group + 1] if group + 1 < len(self.starts) else len(self.configs)
        return slice(int(self.starts[group]), int(end))


def tables(space: Space, rng: random.Random) -> dict[Phase, PhaseTable]:
    """Both phases' tables, over the groups that both have."""
    seed = rng.random()
    listed = {phase: space.listed(phase, random.Random(seed)) for phase in Phase}
    shared = {phase: [space.shared_part(config) for config in configs] for phase, configs in listed.items()}
    both = set.intersection(*(set(parts) for parts in shared.values()))
    numbers = {part: n for n, part in enumerate(p for p in dict.fromkeys(shared[Phase.DECODE]) if p in both)}
    found = {}
    for phase, configs in listed.items():
        kept = [
            (config, numbers[part])
            for config, part in zip(configs, shared[phase], strict=True)
            if part in both
        ]
        found[phase] = PhaseTable(space, phase, [c for c, _ in kept], [number for _, number in kept])
    return found
