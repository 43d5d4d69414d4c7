"""How long a round may take before it is ended, from what the rounds before it took."""

from __future__ import annotations

import math

from profiles.vocabulary import Config
from tuner.engines.base import Phase
from tuner.measurement.asked import Kind
from tuner.measurement.isolation import Deadlines

SLOWEST = 20.0
"""A round this many times slower than any of its kind before is taken for hung."""
HOPELESS = 10.0
"""A configuration's first short round is ended where it takes this many times as long as the fastest one."""


class Patience:
    """Remembers the rounds of one bench; times are in seconds."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._slowest_s: dict[tuple[Kind, frozenset[Phase]], float] = {}
        self._fastest_s: dict[tuple[str, frozenset[Phase]], float] = {}
        self._answered: set[Config] = set()

    def took(self, config: Config, kind: Kind, phases: frozenset[Phase], seconds: float) -> None:
        """A round ended by itself."""
        self._slowest_s[kind, phases] = max(seconds, self._slowest_s.get((kind, phases), 0.0))
        if kind == "short":
            self._answered.add(config)
            fastest_s = self._fastest_s.get((config.engine, phases), math.inf)
            self._fastest_s[config.engine, phases] = min(seconds, fastest_s)

    def limit_s(self, config: Config, kind: Kind, phases: frozenset[Phase]) -> float:
        """How long the next round may take.

        What has answered before, the default above all, is given as much as a round that may hang.
        """
        slowest_s = self._slowest_s.get((kind, phases))
        hung_s = max(self._deadlines.least_run_s, SLOWEST * slowest_s) if slowest_s else math.inf
        hopeless_s = math.inf
        if kind == "short" and config not in self._answered:
            # A round of both phases takes no less than one of them.
            fastest_s = [
                s for (name, known), s in self._fastest_s.items() if name == config.engine and known >= phases
            ]
            if fastest_s:
                hopeless_s = max(self._deadlines.hopeless_s, HOPELESS * min(fastest_s))
        return min(self._deadlines.run_s, hung_s, hopeless_s)
