"""Changes a user's own command to run another configuration, flag by flag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from tuner.export import server_flags
from tuner.export.command import DEFAULT_BATCH, PLACING, Command, Given, Launcher, written
from tuner.export.launch import Launch
from tuner.export.server import flags, prefix
from tuner.measurement.placement import WAIT_POLICIES

_MODEL = ("-hf", "-hff")
_RIVALS: Mapping[str, tuple[str, ...]] = {
    "-m": _MODEL,
    "--no-repack": ("--repack",),
    "-kvu": ("-no-kvu",),
    "--load-mode": ("--mmap", "--no-mmap", "--mlock"),
}
"""Flags that say the same in other words, so that one takes the place of the others."""

_OLD_MODES: Mapping[str, tuple[str, ...]] = {
    "none": ("--no-mmap",),
    "mlock": ("--no-mmap", "--mlock"),
    "mmap+mlock": ("--mlock",),
}
"""--load-mode as builds say it that don't have it."""

_WAITING = frozenset(name for values in WAIT_POLICIES.values() for name in values)


@dataclass(frozen=True)
class FlagChange:
    """One flag, variable or launcher that two commands have differently; None where one of them lacks it,
    "" where it takes no value."""

    flag: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Edited:
    """A changed command: what was changed, and the whole of it in one line to run."""

    changes: tuple[FlagChange, ...]
    text: str

    def of(self, *, before: bool, after: bool) -> tuple[FlagChange, ...]:
        """The changes of flags that were there or not before, and are there or not after."""
        return tuple(
            c for c in self.changes if (c.before is not None, c.after is not None) == (before, after)
        )


def edited(command: Command, before: Launch, after: Launch) -> Edited:
    """The command changed so that it runs `after`, where it runs `before` as it stands.

    What is equal in both stays as the user wrote it: flags that say nothing about speed, the order, the
    spelling. A context and slots that are enough for the launch stay too. The program's own rules hold: -tb
    follows -t where it is left out, and no -ub is above -b.
    """
    wanted = _wanted(command, before, after)
    given = tuple(_replaced(command.given, wanted))
    launchers = _launchers(command.before, before, after)
    changes = (*_changed_launchers(command.before, launchers), *_changed_flags(command.given, given))
    return Edited(changes, written(launchers, command.path, given))


def _wanted(command: Command, before: Launch, after: Launch) -> dict[str, str | None]:
    """The value of each flag that has to change; "" for a switch, None to drop it."""
    old, new = flags(before), flags(after)
    by_rule = ("-m", "-c", "-np", "-b", "-tb")
    names = [name for name in dict.fromkeys((*old, *new)) if name not in by_rule]
    wanted = {name: new.get(name) for name in names if old.get(name) != new.get(name)}
    if before.config.variant != after.config.variant:
        wanted["-m"] = after.model_path
    threads = wanted.get("-t") or old["-t"]
    if command.last("-tb") is None:
        wanted |= {"-tb": new["-tb"]} if threads != new["-tb"] else {}
    elif old["-tb"] != new["-tb"]:
        wanted["-tb"] = new["-tb"]
    batch = command.last("-b")
    ubatch = wanted.get("-ub")
    if ubatch is not None and int(ubatch) > int(batch or DEFAULT_BATCH):
        wanted["-b"] = ubatch
    slots = command.streams or 1
    if after.slots != before.slots or (command.streams is None and after.streams > 1):
        slots = after.slots
        wanted["-np"] = str(slots)
    if command.context_tokens is not None and command.context_tokens < after.context_tokens * slots:
        wanted["-c"] = str(after.context_tokens * slots)
    return wanted


def _replaced(given: Sequence[Given], wanted: Mapping[str, str | None]) -> list[Given]:
    """The flags with the wanted values: in their own place where they are given, else at the end."""
    rivals = {rival for flag in wanted for rival in _RIVALS.get(flag, ())}
    typed = {one.flag for one in given}
    kept: list[Given] = []
    for place, one in enumerate(given):
        is_last = all(later.flag != one.flag for later in given[place + 1 :])
        if one.flag not in wanted:
            kept += [one] if one.flag not in rivals else []
        elif is_last:
            kept += _said(one.flag, one.spelled, wanted[one.flag], typed)
    for flag, value in wanted.items():
        if flag not in typed:
            kept += _said(flag, flag, value, typed)
    return kept


def _said(flag: str, spelled: str, value: str | None, typed: set[str]) -> list[Given]:
    """A flag with its new value; the load mode in the older words where the command has those."""
    if value is None:
        return []
    if flag == "--load-mode" and flag not in typed and typed & set(_RIVALS[flag]):
        return [Given(old, old) for old in _OLD_MODES.get(value, ())]
    return [Given(flag, spelled, (value,) if value else ())]


def _launchers(own: tuple[Launcher, ...], before: Launch, after: Launch) -> tuple[Launcher, ...]:
    """Variables and launchers: those of the wait policy and the placement as `after` has them."""
    if before.variables != after.variables:
        ours = {*_WAITING, *before.variables, *after.variables}
        own = tuple(one for one in own if one.name or one.words[0].partition("=")[0] not in ours)
        new = (Launcher("", (f"{name}={value}",)) for name, value in after.variables.items())
        own = (*new, *own)
    placing = tuple(prefix(after))
    if placing and placing != tuple(prefix(before)):
        own = (*(one for one in own if one.name not in PLACING), Launcher(placing[0], placing))
    return own


def _changed_flags(old: Sequence[Given], new: Sequence[Given]) -> list[FlagChange]:
    values = [{one.flag: replace(one, flag="") for one in given} for given in (old, new)]
    changes = []
    for flag in dict.fromkeys((*values[0], *values[1])):
        before, after = values[0].get(flag), values[1].get(flag)
        if before != after:
            spelled = (after or before or Given("", flag)).spelled
            changes.append(FlagChange(spelled, _value(before), _value(after)))
    return changes


def _value(given: Given | None) -> str | None:
    if given is None:
        return None
    return "***" if server_flags.normal(given.spelled) in server_flags.SECRET else " ".join(given.values)


def _changed_launchers(old: Sequence[Launcher], new: Sequence[Launcher]) -> list[FlagChange]:
    said = [dict(_name_and_value(one) for one in launchers) for launchers in (old, new)]
    return [
        FlagChange(name, said[0].get(name), said[1].get(name))
        for name in dict.fromkeys((*said[0], *said[1]))
        if said[0].get(name) != said[1].get(name)
    ]


def _name_and_value(launcher: Launcher) -> tuple[str, str]:
    if not launcher.name:
        name, _, value = launcher.words[0].partition("=")
        return name, value
    return PurePath(launcher.words[0]).name, " ".join(launcher.words[1:])
