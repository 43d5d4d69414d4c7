"""A user's llama-server command line: the configuration that it means, and how it is written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probes.machine import Machine
from profiles.vocabulary import Setting
from tuner.export import server_flags

PLACING = ("taskset", "numactl")
"""Launchers that say where a program runs."""

DEFAULT_UBATCH, DEFAULT_BATCH = 512, 2048
ALL_CPUS = 0
"""A thread count below 1 means all logical CPUs."""


@dataclass(frozen=True)
class Given:
    """One flag as it stands in a command: by the name used here, as spelled, with its values."""

    flag: str
    spelled: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launcher:
    """What stands before the program: "" with variables of the environment, or a launcher's own words."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """What a command line says: the model as a source, settings that were given, and the context of all
    streams together; None where it leaves them to the program.

    `ignored` says nothing about speed on a CPU, `not_expressed` may, but no configuration has it; both are
    names alone. `before`, `path` and `given` are the command itself.
    """

    program: str
    model: str
    settings: Mapping[str, Setting]
    context_tokens: int | None = None
    streams: int | None = None
    ignored: tuple[str, ...] = ()
    not_expressed: tuple[str, ...] = ()
    before: tuple[Launcher, ...] = ()
    path: str = ""
    given: tuple[Given, ...] = ()

    @property
    def text(self) -> str:
        """The command in one line, without secrets."""
        return written(self.before, self.path, self.given, secrets=False)

    def last(self, flag: str) -> str | None:
        """The value of a flag, where it is given one; the last one counts, as in the program."""
        return next((g.values[-1] for g in reversed(self.given) if g.flag == flag and g.values), None)

    def settings_on(self, machine: Machine) -> dict[str, Setting]:
        """All settings: what was not given is as the program itself chooses it on this machine.

        That is, one thread a physical core for both phases, flash attention (automatic: on), f16 caches.
        """
        logical = machine.logical_cpus or machine.effective.cpu_count
        chosen = {name: logical if value == ALL_CPUS else value for name, value in self._threads().items()}
        decode = chosen.get("n_threads", machine.physical_cores or logical)
        own: dict[str, Setting] = {
            "n_threads": decode,
            "n_threads_batch": decode,
            "n_ubatch": DEFAULT_UBATCH,
            "flash_attn": "on",
            "type_k": "f16",
            "type_v": "f16",
            "swa_full": False,
            "kv_unified": False,
            "repack": True,
            "mmap": True,
            "mlock": False,
        }
        return {**own, **self.settings, **chosen}

    def _threads(self) -> dict[str, Setting]:
        return {
            name: self.settings[name] for name in ("n_threads", "n_threads_batch") if name in self.settings
        }


def written(before: Sequence[Launcher], path: str, given: Sequence[Given], *, secrets: bool = True) -> str:
    """A command in one line, each word quoted where the shell wants it; secrets as *** where not wanted."""
    words = [quoted(word) for launcher in before for word in launcher.words] + [quoted(path)]
    for one in given:
        hidden = one.flag in server_flags.SECRET and not secrets
        words += [one.spelled, *(["***"] if hidden else map(quoted, one.values))]
    return " ".join(words)


def quoted(word: str) -> str:
    """A word for the shell: VARIABLE= and a home folder's ~ at its beginning keep their meaning."""
    match = re.match(r"[A-Za-z_]\w*=|~/", word)
    head = match[0] if match else ""
    rest = word[len(head) :]
    return head + (shlex.quote(rest) if rest or not head else "")
