"""Which settings break trials: a value, or a pair of values, that never works is left alone after three."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import combinations

from profiles.vocabulary import Config, Setting
from tuner.search.space import VARIANT

FAILURES = 3

Value = tuple[str, str, Setting]
"""Engine, setting, value."""
Cause = frozenset[Value]
"""One value, or two that fail together."""


def values_of(config: Config) -> list[Value]:
    """Everything in a configuration that a failure can be blamed on, alone or in pairs."""
    named = [(VARIANT, config.variant), *config.settings]
    return [(config.engine, name, value) for name, value in named]


def causes_of(config: Config, size: int) -> Iterator[Cause]:
    """Every value of a configuration (size 1), or every pair of values (size 2)."""
    return map(frozenset, combinations(values_of(config), size))


class Blame:
    """Finds what failed trials have in common and no successful one has."""

    def __init__(self) -> None:
        self._failed: dict[str, Config] = {}
        self._worked: dict[int, set[Cause]] = {1: set(), 2: set()}
        self._guilty: frozenset[Cause] | None = None

    def worked(self, config: Config) -> None:
        """A trial of this configuration measured something."""
        for size, known in self._worked.items():
            known.update(causes_of(config, size))
        self._guilty = None

    def failed(self, config: Config) -> None:
        """A trial of this configuration ended as a failure."""
        self._failed[config.key] = config
        self._guilty = None

    def forgive(self, config: Config) -> None:
        """Let a configuration that failed be tried once more: what broke it may have been mended."""
        self._failed.pop(config.key, None)
        self._guilty = None

    def rules_out(self, config: Config) -> bool:
        """Whether it failed itself, or holds what failed three times and never worked.

        Only a value that others were seen to work without: what all trials share is no suspect. A pair is one
        where each of its values works without the other.
        """
        if config.key in self._failed:
            return True
        if self._guilty is None:
            self._guilty = self._find_guilty()
        present = set(values_of(config))
        return any(cause <= present for cause in self._guilty)

    def _find_guilty(self) -> frozenset[Cause]:
        """What explains the failures: single values first, then pairs; each time what explains most of them.

        Of several that explain the same failures any may be the cause, so all are ruled out until one works.
        """
        guilty: set[Cause] = set()
        left: Collection[Config] = list(self._failed.values())
        for size in self._worked:
            while True:
                counts = Counter(
                    cause for config in left for cause in causes_of(config, size) if self._is_suspect(cause)
                )
                most = max(counts.values(), default=0)
                if most < FAILURES:
                    break
                found = {cause for cause, count in counts.items() if count == most}
                guilty |= found
                left = [c for c in left if not any(cause <= set(values_of(c)) for cause in found)]
        return frozenset(guilty)

    def _is_suspect(self, cause: Cause) -> bool:
        if cause in self._worked[len(cause)]:
            return False
        if len(cause) == 1:
            ((engine, name, _),) = cause
            return any(worked[:2] == (engine, name) for known in self._worked[1] for worked in known)
        return all(frozenset({value}) in self._worked[1] for value in cause)
