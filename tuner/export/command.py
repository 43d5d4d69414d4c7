"""Reads a user's llama-server command line: the configuration that it means."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from probes.machine import Machine
from profiles.vocabulary import Setting
from tuner.errors import UsageError
from tuner.measurement.placement import WAIT_POLICIES

PROGRAMS = ("llama-server", "llama-cli", "llama-completion", "llama-simple", "server", "main")
"""Programs that share these flags, by their present and their former names."""

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
DEFAULT_UBATCH, DEFAULT_BATCH = 512, 2048
ALL_CPUS = 0
"""A thread count below 1 means all logical CPUs."""

_LAUNCHERS = ("taskset", "numactl", "nice", "chrt", "ionice")

_LOAD_MODES: Mapping[str, Mapping[str, Setting]] = {
    "auto": {"mmap": True, "mlock": False},
    "mmap": {"mmap": True, "mlock": False},
    "none": {"mmap": False, "mlock": False},
    "mlock": {"mmap": False, "mlock": True},
    "mmap+mlock": {"mmap": True, "mlock": True},
}
_FLASH = {
    "on": "on", "1": "on", "true": "on", "enabled": "on",
    "off": "off", "0": "off", "false": "off", "disabled": "off",
    # On a CPU, auto ends with it.
    "auto": "on", "-1": "on",
}  # fmt: skip
_ALIASES = {
    "--model": "-m", "--threads": "-t", "--threads-batch": "-tb", "--ctx-size": "-c", "--batch-size": "-b",
    "--ubatch-size": "-ub", "--parallel": "-np", "--flash-attn": "-fa", "--cache-type-k": "-ctk",
    "--cache-type-v": "-ctv", "--load-mode": "-lm", "--no-repack": "-nr", "-hfr": "-hf", "--hf-repo": "-hf",
    "--hf-file": "-hff",
}  # fmt: skip
_SWITCHES: Mapping[str, Mapping[str, Setting]] = {
    "-nr": {"repack": False},
    "--repack": {"repack": True},
    "--no-mmap": {"mmap": False},
    "--mmap": {"mmap": True},
    "--mlock": {"mlock": True},
    "--swa-full": {"swa_full": True},
}
_CHANGES_SPEED = re.compile(
    r"-{1,2}(C|Cr|Cb|Crb|cpu-.*|prio.*|poll.*|numa|md|model-draft|spec-.*|draft.*|lora.*|kvu|kv-unified.*"
    r"|ctxcp|ctx-checkpoints|rope-.*|yarn-.*|lzm|lazy-mode|ot|override-.*|mm|mmproj.*|cmoe|cpu-moe|ncmoe)"
)
"""Flags that a baseline does not reproduce, although they may change what it would measure."""

_GPU = re.compile(
    r"-{1,2}(ngl|gpu-layers|n-gpu-layers|sm|split-mode|ts|tensor-split|mg|main-gpu|dev|device|nkvo)"
)


@dataclass(frozen=True)
class Command:
    """What a command line says: the model as a source, settings that were given, and the context of all
    streams together; None where it leaves them to the program. `notes` tell what was left aside."""

    program: str
    model: str
    settings: Mapping[str, Setting]
    context_tokens: int | None = None
    streams: int | None = None
    notes: tuple[str, ...] = ()

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
            "repack": True,
            "mmap": True,
            "mlock": False,
        }
        return {**own, **self.settings, **chosen}

    def _threads(self) -> dict[str, Setting]:
        return {
            name: self.settings[name] for name in ("n_threads", "n_threads_batch") if name in self.settings
        }


def parse_command(text: str) -> Command:
    """The command that `text` is: variables and launchers such as taskset may stand before the program.

    Raises UsageError for what is no such command, names no model, or gives a flag a value that it can't have.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise UsageError(f"--from: the command can't be read: {error}") from None
    at = next((i for i, word in enumerate(words) if PurePath(word).name in PROGRAMS), None)
    if at is None:
        raise UsageError(
            f"--from: no known program in '{' '.join(words[:4])}': allowed are {', '.join(PROGRAMS[:3])}"
        )
    reading = _Reading(PurePath(words[at]).name)
    reading.before(words[:at])
    reading.flags(words[at + 1 :])
    return reading.command()


class _Reading:
    """What was read so far; of a flag that comes twice the last one counts, as in the program."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._settings: dict[str, Setting] = {}
        self._numbers: dict[str, int] = {}
        self._model: dict[str, str] = {}
        self._quiet: list[str] = []
        self._loud: list[str] = []
        self._gpu: list[str] = []
        self._valued: Mapping[str, Callable[[str, str], None]] = {
            "-m": self._take_model, "-hf": self._take_model, "-hff": self._take_model,
            "-t": self._take_threads, "-tb": self._take_threads,
            "-c": self._take_number, "-b": self._take_number, "-ub": self._take_number,
            "-np": self._take_number, "-ctk": self._take_type, "-ctv": self._take_type,
            "-lm": self._take_mode,
        }  # fmt: skip

    def before(self, words: list[str]) -> None:
        """Variables and launchers."""
        variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Za-z_]\w*=", word))
        waiting = {name: value for name, value in variables.items() if name.startswith(("OMP_", "GOMP_"))}
        for policy, values in WAIT_POLICIES.items():
            if waiting and values == waiting:
                self._settings["wait_policy"] = policy
                waiting = {}
        self._loud += [*waiting, *(name for name in variables if name.startswith("LLAMA_ARG_"))]
        self._loud += [
            word for word in words if PurePath(word).name in ("taskset", "numactl", "nice", "chrt")
        ]

    def flags(self, words: list[str]) -> None:
        """Flags with their values."""
        position = 0
        while position < len(words):
            given = words[position]
            flag = _ALIASES.get(given, given)
            position += 1
            following = words[position] if position < len(words) else None
            has_value = following is not None and (
                not following.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", following) is not None
            )
            if not flag.startswith("-"):
                raise UsageError(f"--from: '{given}' belongs to no flag of {self._program}")
            if flag in _SWITCHES:
                self._settings.update(_SWITCHES[flag])
            elif flag == "-fa":
                # A switch in older builds.
                position += self._take_flash(given, following if has_value else None)
            elif flag in self._valued:
                if following is None:
                    raise UsageError(f"--from: {given} lacks its value")
                self._valued[flag](flag, following)
                position += 1
            else:
                kind = self._gpu if _GPU.fullmatch(given) else self._quiet
                (self._loud if _CHANGES_SPEED.fullmatch(given) else kind).append(given)
                position += has_value

    def command(self) -> Command:
        """The result; UsageError where no model was named."""
        if not self._model:
            raise UsageError(
                "--from: the command names no model: give it -m FILE, or -hf OWNER/REPO -hff FILE"
            )
        batch = self._numbers.get("-b", DEFAULT_BATCH)
        if "-ub" in self._numbers or batch < DEFAULT_UBATCH:
            # As in the program: no physical batch is above the logical one.
            self._settings["n_ubatch"] = min(batch, self._numbers.get("-ub", DEFAULT_UBATCH))
        notes = [
            ("left aside, it says nothing about speed on a CPU", self._quiet),
            ("left aside, cputune measures on the CPU", self._gpu),
            ("not reproduced by the baseline, though it may change its speed", self._loud),
        ]
        return Command(
            program=self._program,
            model=self._source(),
            settings=dict(sorted(self._settings.items())),
            context_tokens=self._numbers.get("-c") or None,
            streams=self._numbers.get("-np"),
            notes=tuple(f"{', '.join(dict.fromkeys(names))}: {why}" for why, names in notes if names),
        )

    def _source(self) -> str:
        if "-m" in self._model:
            return self._model["-m"]
        repository, file = self._model.get("-hf", ""), self._model.get("-hff")
        if not repository or (":" in repository and file is None):
            raise UsageError(f"--from: -hf {repository} does not name one file: add -hff FILE")
        name = repository.partition(":")[0]
        return f"hf:{name}" if file is None else f"hf:{name}:{file}"

    def _take_model(self, flag: str, value: str) -> None:
        self._model[flag] = value

    def _take_threads(self, flag: str, value: str) -> None:
        name = "n_threads" if flag == "-t" else "n_threads_batch"
        self._settings[name] = max(ALL_CPUS, _integer(flag, value, "a number of threads"))

    def _take_number(self, flag: str, value: str) -> None:
        number = _integer(flag, value, "a number")
        # 0 is the model's own context, -1 an automatic number of slots.
        if number < 1 and (flag, number) not in (("-c", 0), ("-np", -1)):
            raise UsageError(f"--from: {flag} {number}: allowed is 1 or more")
        self._numbers.pop(flag, None)
        if number > 0:
            self._numbers[flag] = number

    def _take_type(self, flag: str, value: str) -> None:
        if value not in KV_TYPES:
            raise UsageError(f"--from: {flag} {value}: allowed are {', '.join(KV_TYPES)}")
        self._settings["type_k" if flag == "-ctk" else "type_v"] = value

    def _take_mode(self, flag: str, value: str) -> None:
        if value not in _LOAD_MODES:
            raise UsageError(f"--from: --load-mode {value}: allowed are {', '.join(_LOAD_MODES)}")
        self._settings.update(_LOAD_MODES[value])

    def _take_flash(self, given: str, value: str | None) -> int:
        if value is not None and value not in _FLASH:
            raise UsageError(f"--from: {given} {value}: allowed are on, off, auto")
        self._settings["flash_attn"] = "on" if value is None else _FLASH[value]
        return value is not None


def _integer(flag: str, value: str, what: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"--from: {flag} {value}: {what} was expected") from None
