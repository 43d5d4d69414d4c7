"""Brings a configuration from one machine to another by the role of each of its settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from profiles.nearest import Cpus
from profiles.vocabulary import Config, Role, Setting


class Described(Protocol):
    """A setting as an engine describes it; values in ascending order where they have one."""

    @property
    def name(self) -> str:
        """Of the setting."""

    @property
    def values(self) -> tuple[Setting, ...]:
        """What may be tried here."""

    @property
    def default(self) -> Setting:
        """What a user gets who sets nothing."""

    @property
    def role(self) -> Role:
        """What the setting is about."""


def carried_over(
    config: Config, described: Iterable[Described], there: Cpus | None, here: Cpus
) -> tuple[Config, tuple[str, ...]]:
    """A configuration from another machine with each setting brought to this one by its role.

    *threads*: a thread a core stays that, and a thread a CPU; any other count keeps its share of the CPUs;
    never above those here. Without `there` they are only cut. *batch*: the nearest value that is described
    here, *kv* and *weights*: kept where described, else the default. *placement*: kept where this machine has
    such a place, else the default, and dropped where nothing is to be placed. Settings that are not described
    are dropped. The lines tell every change with its reason.
    """
    by_name: Mapping[str, Described] = {setting.name: setting for setting in described}
    settings: dict[str, Setting] = {}
    changes: list[str] = []
    for name, value in config.settings:
        setting = by_name.get(name)
        if setting is None:
            changes.append(f"{name} {_shown(value)} is dropped: it is no choice here")
            continue
        settings[name], why = _brought(setting, value, there, here)
        if settings[name] != value:
            changes.append(f"{name} {_shown(value)} -> {_shown(settings[name])} ({why})")
    return Config.of(config.engine, config.variant, settings), tuple(changes)


def _brought(setting: Described, value: Setting, there: Cpus | None, here: Cpus) -> tuple[Setting, str]:
    """The value here, and why it is that one."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if setting.role is Role.THREADS and is_count:
        return _threads(int(value), there, here)
    if value in setting.values or value == setting.default:
        return value, "as it is"
    numbers = [v for v in setting.values if isinstance(v, int) and not isinstance(v, bool)]
    if setting.role is Role.BATCH and is_count and numbers:
        nearest = min(numbers, key=lambda v: abs(math.log2(v / max(int(value), 1))))
        return nearest, "the nearest choice here"
    return setting.default, f"{_shown(value)} is no choice here"


def _threads(count: int, there: Cpus | None, here: Cpus) -> tuple[int, str]:
    if there is None:
        wanted, why = count, ""
    elif count == there.cores and here.cores is not None:
        wanted, why = here.cores, "one for each core"
    elif count == there.usable:
        wanted, why = here.usable, "one for each CPU"
    else:
        wanted, why = round(count * here.usable / there.usable), "the same share of the CPUs"
    kept = min(max(wanted, 1), here.usable)
    return kept, why if kept == wanted and why else f"CPUs here: {here.usable}"


def _shown(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
