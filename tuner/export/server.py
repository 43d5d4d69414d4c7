"""A launch as llama-server takes it: a command line, or variables."""

from __future__ import annotations

import shlex

from probes.cpulist import format_cpu_list
from tuner.export.launch import LLAMA_CPP, Launch, comments

_VARIABLES = {
    "-m": "MODEL", "-c": "CTX_SIZE", "-np": "N_PARALLEL", "-t": "THREADS", "-b": "BATCH", "-ub": "UBATCH",
    "-fa": "FLASH_ATTN", "-ctk": "CACHE_TYPE_K", "-ctv": "CACHE_TYPE_V", "--load-mode": "LOAD_MODE",
    "--numa": "NUMA",
}  # fmt: skip
_SWITCHES = {
    "--swa-full": ("SWA_FULL", "1"), "--no-repack": ("REPACK", "off"), "-kvu": ("KV_UNIFIED", "1"),
}  # fmt: skip
_OLDER = {
    "none": "--no-mmap",
    "mmap+mlock": "--mlock",
    "mlock": "--no-mmap --mlock",
}
"""--load-mode in the words of builds that don't know it yet."""


def as_llama_server(launch: Launch) -> str:
    """A shell command under its remarks; wait policy and placement come before the program's name."""
    launch.require(LLAMA_CPP, "llama-server")
    words = [f"{name}={value}" for name, value in launch.variables.items()]
    words += [*prefix(launch), "llama-server"]
    lines = [" ".join(words)]
    lines += [f"{flag} {shlex.quote(value)}" if value else flag for flag, value in flags(launch).items()]
    return comments((*launch.remarks, *unsaid(launch))) + " \\\n  ".join(lines) + "\n"


def as_environment(launch: Launch) -> str:
    """Variables that llama-server reads, one a line, as for `docker run --env-file`."""
    launch.require(LLAMA_CPP, "llama-server")
    lines = [f"{name}={value}" for name, value in launch.variables.items()]
    found = []
    for flag, value in flags(launch).items():
        if flag in _VARIABLES:
            lines.append(f"LLAMA_ARG_{_VARIABLES[flag]}={value}")
        elif flag in _SWITCHES:
            lines.append("LLAMA_ARG_{}={}".format(*_SWITCHES[flag]))
        else:
            found.append(f"no variable says {flag} {value}: give the flag itself")
    if launch.cpus is not None:
        found.append(f"no variable says where it runs: start it on CPUs {format_cpu_list(launch.cpus)}")
    return comments((*launch.remarks, *found, *unsaid(launch))) + "\n".join(lines) + "\n"


def flags(launch: Launch) -> dict[str, str]:
    """llama-server's flags with their values, "" for a switch; what equals its default is left out where
    the default is the same in every release."""
    found = {
        "-m": launch.model_path,
        "-c": str(launch.context_tokens * launch.slots),
        "-np": str(launch.slots),
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
    if launch.setting("kv_unified", False):
        found["-kvu"] = ""
    if not launch.setting("repack", True):
        found["--no-repack"] = ""
    if launch.setting("numa", "off") != "off":
        found["--numa"] = str(launch.setting("numa", "off"))
    mode = _load_mode(launch)
    if mode != "mmap":
        found["--load-mode"] = mode
    return found


def prefix(launch: Launch) -> list[str]:
    """The launcher of the placement, with its words; none where it may run anywhere."""
    if launch.node is not None:
        return ["numactl", f"--cpunodebind={launch.node}", f"--membind={launch.node}"]
    return [] if launch.cpus is None else ["taskset", "-c", format_cpu_list(launch.cpus)]


def _load_mode(launch: Launch) -> str:
    parts = [name for name, default in (("mmap", True), ("mlock", False)) if launch.setting(name, default)]
    return "+".join(parts) or "none"


def unsaid(launch: Launch) -> tuple[str, ...]:
    """What flags can't say of a launch, and what older builds say otherwise."""
    found = []
    mode = _load_mode(launch)
    if mode in _OLDER:
        found.append(f"builds before --load-mode say {_OLDER[mode]} instead")
    chunk = int(launch.setting("prefill_chunk", launch.batch))
    if chunk < launch.batch:
        found.append(f"no flag says prefill_chunk={chunk}: llama-server fills its batch with prompts")
    return tuple(found)
