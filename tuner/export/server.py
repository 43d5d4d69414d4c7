"""A launch as llama-server takes it: a command line, or variables."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from tuner.export.launch import LLAMA_CPP, Launch, comments, cpu_list

_VARIABLES = {
    "-m": "MODEL", "-c": "CTX_SIZE", "-np": "N_PARALLEL", "-t": "THREADS", "-b": "BATCH", "-ub": "UBATCH",
    "-fa": "FLASH_ATTN", "-ctk": "CACHE_TYPE_K", "-ctv": "CACHE_TYPE_V", "--load-mode": "LOAD_MODE",
}  # fmt: skip
_SWITCHES = {"--swa-full": ("SWA_FULL", "1"), "--no-repack": ("REPACK", "off")}
_OLDER = {
    "none": "--no-mmap",
    "mmap+mlock": "--mlock",
    "mlock": "--no-mmap --mlock",
}
"""--load-mode in the words of builds that don't know it yet."""


@dataclass(frozen=True)
class FlagChange:
    """One flag that two launches have differently; None where one of them lacks it."""

    flag: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {f'{self.flag} {self.after}'.strip()}"
        if self.after is None:
            return f"- {f'{self.flag} {self.before}'.strip()}"
        return f"  {self.flag} {self.before} -> {self.after}"


def as_llama_server(launch: Launch) -> str:
    """A shell command under its remarks; wait policy and placement come before the program's name."""
    launch.require(LLAMA_CPP, "llama-server")
    words = [f"{name}={value}" for name, value in launch.variables.items()]
    words += [*_prefix(launch), "llama-server"]
    lines = [" ".join(words)]
    lines += [f"{flag} {shlex.quote(value)}" if value else flag for flag, value in flags(launch).items()]
    return comments((*launch.remarks, *_notes(launch))) + " \\\n  ".join(lines) + "\n"


def as_environment(launch: Launch) -> str:
    """Variables that llama-server reads, one a line, as for `docker run --env-file`."""
    launch.require(LLAMA_CPP, "llama-server")
    lines = [f"{name}={value}" for name, value in launch.variables.items()]
    unsaid = []
    for flag, value in flags(launch).items():
        if flag in _VARIABLES:
            lines.append(f"LLAMA_ARG_{_VARIABLES[flag]}={value}")
        elif flag in _SWITCHES:
            lines.append("LLAMA_ARG_{}={}".format(*_SWITCHES[flag]))
        else:
            unsaid.append(f"no variable says {flag} {value}: give the flag itself")
    if launch.cpus is not None:
        unsaid.append(f"no variable says where it runs: start it on CPUs {cpu_list(launch.cpus)}")
    return comments((*launch.remarks, *unsaid, *_notes(launch))) + "\n".join(lines) + "\n"


def flags(launch: Launch) -> dict[str, str]:
    """llama-server's flags with their values, "" for a switch; what equals its default is left out where
    the default is the same in every release."""
    found = {
        "-m": launch.model_path,
        "-c": str(launch.context_tokens * launch.streams),
        "-np": str(launch.streams),
        "-t": str(launch.setting("n_threads", 1)),
        "-tb": str(launch.setting("n_threads_batch", launch.setting("n_threads", 1))),
        "-b": str(launch.batch),
        "-ub": str(launch.setting("n_ubatch", 512)),
        "-fa": str(launch.setting("flash_attn", "off")),
    }
    for flag, name in (("-ctk", "type_k"), ("-ctv", "type_v")):
        if launch.setting(name, "f16") != "f16":
            found[flag] = str(launch.setting(name, "f16"))
    if launch.setting("swa_full", False):
        found["--swa-full"] = ""
    if not launch.setting("repack", True):
        found["--no-repack"] = ""
    mode = _load_mode(launch)
    if mode != "mmap":
        found["--load-mode"] = mode
    return found


def diff_of_flags(before: Launch, after: Launch) -> tuple[FlagChange, ...]:
    """What to change in a llama-server command to go from one launch to another, the file included."""
    old, new = flags(before), flags(after)
    prefixes = (" ".join(_before_program(before)), " ".join(_before_program(after)))
    changes = [
        FlagChange(flag, old.get(flag), new.get(flag))
        for flag in dict.fromkeys((*old, *new))
        if old.get(flag) != new.get(flag)
    ]
    if prefixes[0] != prefixes[1]:
        changes.append(FlagChange("(before the program)", prefixes[0] or None, prefixes[1] or None))
    return tuple(changes)


def _before_program(launch: Launch) -> list[str]:
    return [*(f"{name}={value}" for name, value in launch.variables.items()), *_prefix(launch)]


def _prefix(launch: Launch) -> list[str]:
    if launch.node is not None:
        return ["numactl", f"--cpunodebind={launch.node}", "--localalloc"]
    return [] if launch.cpus is None else ["taskset", "-c", cpu_list(launch.cpus)]


def _load_mode(launch: Launch) -> str:
    parts = [name for name, default in (("mmap", True), ("mlock", False)) if launch.setting(name, default)]
    return "+".join(parts) or "none"


def _notes(launch: Launch) -> tuple[str, ...]:
    mode = _load_mode(launch)
    if mode not in _OLDER:
        return ()
    return (f"builds before --load-mode say {_OLDER[mode]} instead",)
