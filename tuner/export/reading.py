"""Reads the words of a command line into a `Command`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePath

from profiles.vocabulary import Config, Setting
from tuner.errors import UsageError
from tuner.export import server_flags
from tuner.export.command import ALL_CPUS, DEFAULT_BATCH, DEFAULT_UBATCH, PLACING, Command, Given, Launcher
from tuner.measurement import placement

PROGRAMS = ("llama-server", "llama-cli", "llama-completion", "llama-simple", "server", "main")
"""Programs that share these flags, by their present and their former names."""

_RUNNING = ("nice", "chrt", "ionice", "env", "nohup", "exec", "time", "sudo", "stdbuf")
"""Launchers that say how a program runs."""

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

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
_SWITCHES: Mapping[str, Mapping[str, Setting]] = {
    "--no-repack": {"repack": False},
    "--repack": {"repack": True},
    "--no-mmap": {"mmap": False},
    "--mmap": {"mmap": True},
    "--mlock": {"mlock": True},
    "--swa-full": {"swa_full": True},
    "-kvu": {"kv_unified": True},
    "-no-kvu": {"kv_unified": False},
}


def parse_command(text: str, origin: str = "--from") -> Command:
    """The command that `text` is: variables and launchers such as taskset may stand before the program.

    Raises UsageError, which begins with `origin`, for what is no such command, names no model, has a flag
    that is unknown, or gives one a value that it can't have.
    """
    try:
        return _parsed(text)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from None


def _parsed(text: str) -> Command:
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise UsageError(f"the command can't be read: {error}") from None
    at = next((i for i, word in enumerate(words) if is_program(word)), None)
    if at is None:
        raise UsageError(
            f"no known program in '{' '.join(words[:4])}': allowed are {', '.join(PROGRAMS[:3])},"
            " as in 'llama-server -m FILE -t 4'"
        )
    reading = _Reading(words[at])
    reading.before(words[:at])
    reading.flags(words[at + 1 :])
    return reading.command()


def is_program(word: str) -> bool:
    """Whether a word runs one of the programs."""
    return PurePath(word).name in PROGRAMS


class _Reading:
    """What was read so far; of a flag that comes twice the last one counts, as in the program."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._program = PurePath(path).name
        self._settings: dict[str, Setting] = {}
        self._numbers: dict[str, int] = {}
        self._model: dict[str, str] = {}
        self._ignored: list[str] = []
        self._unsaid: list[str] = []
        self._before: list[Launcher] = []
        self._given: list[Given] = []
        self._valued: Mapping[str, Callable[[str, str], None]] = {
            "-m": self._take_model, "-hf": self._take_model, "-hff": self._take_model,
            "-t": self._take_threads, "-tb": self._take_threads,
            "-c": self._take_number, "-b": self._take_number, "-ub": self._take_number,
            "-np": self._take_number, "-ctk": self._take_type, "-ctv": self._take_type,
            "--load-mode": self._take_mode,
        }  # fmt: skip

    def before(self, words: list[str]) -> None:
        """Variables and launchers, each with its own words; UsageError for another program."""
        found: list[tuple[str, list[str]]] = []
        for word in words:
            name = PurePath(word).name
            if re.match(r"[A-Za-z_]\w*=", word):
                found.append(("", [word]))
            elif name in (*PLACING, *_RUNNING):
                found.append((name, [word]))
            elif found and found[-1][0]:
                found[-1][1].append(word)
            else:
                raise UsageError(
                    f"'{word}' before {self._program} is not understood: allowed are VARIABLE=value,"
                    f" {', '.join((*PLACING, *_RUNNING))}"
                )
        self._before = [Launcher(name, tuple(own)) for name, own in found]
        variables = dict(own[0].split("=", 1) for name, own in found if not name)
        waiting = {name: value for name, value in variables.items() if name.startswith(("OMP_", "GOMP_"))}
        for policy, values in placement.WAIT_POLICIES.items():
            if waiting and values == waiting:
                self._settings[placement.WAIT_POLICY] = policy
                waiting = {}
        tunables = placement.variables(Config("", "", ((placement.HUGE_PAGES, True),)))
        if tunables.items() <= variables.items():
            self._settings[placement.HUGE_PAGES] = True
        self._unsaid += [*waiting, *(name for name in variables if name.startswith("LLAMA_ARG_"))]
        self._unsaid += [name for name, _ in found if name in (*PLACING, "nice", "chrt", "ionice")]

    def flags(self, words: list[str]) -> None:
        """Flags with their values."""
        position = 0
        while position < len(words):
            spelled = words[position]
            flag = server_flags.normal(spelled)
            position += 1
            if not flag.startswith("-"):
                raise UsageError(
                    f"'{spelled}' belongs to no flag of {self._program}: give one command alone,"
                    " without pipes and redirections"
                )
            following = words[position:]
            count = self._count(spelled, flag, following)
            if len(following) < count:
                raise UsageError(f"{spelled} lacks its value")
            position += count
            self._take(Given(flag, spelled, tuple(following[:count])))

    def _count(self, spelled: str, flag: str, following: list[str]) -> int:
        """How many of the following words are the flag's; UsageError for an unknown flag."""
        if flag in _SWITCHES:
            return 0
        if flag in self._valued:
            return 1
        if flag == "-fa":
            # A switch in older builds.
            return int(bool(following) and (following[0] in _FLASH or not following[0].startswith("-")))
        count = server_flags.values_of(flag)
        if count is None:
            close = server_flags.nearest(spelled)
            meant = f"; did you mean {close[0]}?" if len(close) == 1 else f"; related are {', '.join(close)}"
            raise UsageError(
                f"unknown flag '{spelled}' of {self._program}"
                + (meant if close else ": allowed are those of llama-server")
            )
        return count

    def _take(self, given: Given) -> None:
        self._given.append(given)
        flag = given.flag
        if flag in _SWITCHES:
            self._settings.update(_SWITCHES[flag])
        elif flag in self._valued:
            self._valued[flag](given.spelled, given.values[0])
        elif flag == "-fa":
            self._take_flash(given.spelled, given.values[0] if given.values else None)
        elif server_flags.changes_speed(flag) or server_flags.is_for_gpus(flag):
            self._unsaid.append(given.spelled)
        else:
            self._ignored.append(given.spelled)

    def command(self) -> Command:
        """The result; UsageError where no model was named."""
        if not self._model:
            raise UsageError("the command names no model: give it -m FILE, or -hf OWNER/REPO -hff FILE")
        batch = self._numbers.get("-b", DEFAULT_BATCH)
        if "-ub" in self._numbers or batch < DEFAULT_UBATCH:
            # As in the program: no physical batch is above the logical one.
            self._settings["n_ubatch"] = min(batch, self._numbers.get("-ub", DEFAULT_UBATCH))
        return Command(
            program=self._program,
            model=self._source(),
            settings=dict(sorted(self._settings.items())),
            context_tokens=self._numbers.get("-c") or None,
            streams=self._numbers.get("-np"),
            ignored=tuple(dict.fromkeys(self._ignored)),
            not_expressed=tuple(dict.fromkeys(self._unsaid)),
            before=tuple(self._before),
            path=self._path,
            given=tuple(self._given),
        )

    def _source(self) -> str:
        if "-m" in self._model:
            return self._model["-m"]
        repository, file = self._model.get("-hf", ""), self._model.get("-hff")
        if not repository or (":" in repository and file is None):
            raise UsageError(f"-hf {repository} does not name one file: add -hff FILE")
        name = repository.partition(":")[0]
        return f"hf:{name}" if file is None else f"hf:{name}:{file}"

    def _take_model(self, spelled: str, value: str) -> None:
        if not value:
            raise UsageError(f"{spelled} '': allowed is the name of a file or a repository")
        self._model[server_flags.normal(spelled)] = value

    def _take_threads(self, spelled: str, value: str) -> None:
        name = "n_threads" if server_flags.normal(spelled) == "-t" else "n_threads_batch"
        self._settings[name] = max(ALL_CPUS, _integer(spelled, value, "a number of threads"))

    def _take_number(self, spelled: str, value: str) -> None:
        flag, number = server_flags.normal(spelled), _integer(spelled, value, "a number")
        # 0 is the model's own context, -1 an automatic number of slots.
        if number < 1 and (flag, number) not in (("-c", 0), ("-np", -1)):
            raise UsageError(f"{spelled} {number}: allowed is 1 or more")
        self._numbers.pop(flag, None)
        if number > 0:
            self._numbers[flag] = number

    def _take_type(self, spelled: str, value: str) -> None:
        if value not in KV_TYPES:
            raise UsageError(f"{spelled} {value}: allowed are {', '.join(KV_TYPES)}")
        self._settings["type_k" if server_flags.normal(spelled) == "-ctk" else "type_v"] = value

    def _take_mode(self, spelled: str, value: str) -> None:
        if value not in _LOAD_MODES:
            raise UsageError(f"{spelled} {value}: allowed are {', '.join(_LOAD_MODES)}")
        self._settings.update(_LOAD_MODES[value])

    def _take_flash(self, spelled: str, value: str | None) -> None:
        if value is not None and value not in _FLASH:
            raise UsageError(f"{spelled} {value}: allowed are on, off, auto")
        self._settings["flash_attn"] = "on" if value is None else _FLASH[value]


def _integer(spelled: str, value: str, what: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{spelled} {value}: {what} was expected") from None
