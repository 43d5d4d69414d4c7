"""Which values of settings break trials: one that never works is left alone after three."""

from __future__ import annotations

from collections import Counter

from profiles.vocabulary import Config, Setting
from tuner.search.space import VARIANT

FAILURES = 3

Value = tuple[str, str, Setting]
"""Engine, setting, value."""


def values_of(config: Config) -> list[Value]:
    """Everything in a configuration that a failure can be blamed on."""
    named = [(VARIANT, config.variant), *config.settings]
    return [(config.engine, name, value) for name, value in named]


class Blame:
    """Counts what failed trials have in common."""

    def __init__(self) -> None:
        self._failures: Counter[Value] = Counter()
        self._worked: set[Value] = set()
        self._failed: set[str] = set()

    def worked(self, config: Config) -> None:
        """A trial of this configuration measured something."""
        self._worked.update(values_of(config))

    def failed(self, config: Config) -> None:
        """A trial of this configuration ended as a failure."""
        self._failed.add(config.key)
        self._failures.update(values_of(config))

    def forgive(self, config: Config) -> None:
        """Let a configuration that failed be tried once more: what broke it may have been mended."""
        if config.key in self._failed:
            self._failed.remove(config.key)
            self._failures.subtract(values_of(config))

    def rules_out(self, config: Config) -> bool:
        """Whether it failed itself, or holds a value that failed three times and never worked.

        Only a value that others were seen to work without: what all trials share is no suspect.
        """
        return config.key in self._failed or any(map(self._is_guilty, values_of(config)))

    def _is_guilty(self, value: Value) -> bool:
        if self._failures[value] < FAILURES or value in self._worked:
            return False
        return any(worked[:2] == value[:2] for worked in self._worked)
