"""Whether an engine runs on this machine, found out in a child process that may die of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, cast

from profiles.vocabulary import TrialStatus
from tuner import process
from tuner.engines import BUILT_IN
from tuner.engines.base import Availability, Engine

DEADLINE_S = 60.0
_OFTEN_NEEDED = ("avx", "avx2", "fma", "f16c", "bmi2")

# The probe's own exceptions come back as data, so that nothing is read out of a traceback's text.
_WRAPPER = """
import json, sys
try:
    exec(compile(sys.argv[1], "<probe>", "exec"), {"__name__": "__main__"})
except ModuleNotFoundError as error:
    print(json.dumps({"missing": error.name}))
except Exception as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
"""


def availability(
    engine: Engine,
    *,
    features: Collection[str] = (),
    interpreter: str = sys.executable,
    deadline_s: float = DEADLINE_S,
) -> Availability:
    """Import the engine in a child, run it for a moment, and say why not where it does not run.

    `features` are the CPU's instruction sets by /proc/cpuinfo's names; with them a build that needs more
    is told which of the usual ones are missing. Raises nothing for what the engine does.
    """
    argv = _argv(engine, interpreter)
    return _answer(engine, process.run(argv, deadline_s=deadline_s), features, deadline_s)


def availabilities(engines: Sequence[Engine], *, features: Collection[str] = ()) -> list[Availability]:
    """As `availability`, of several engines side by side, in their order."""
    # As long as if they had run one after another on each CPU.
    deadline_s = DEADLINE_S * max(1, -(-len(engines) // len(os.sched_getaffinity(0))))
    argvs = [_argv(engine, sys.executable) for engine in engines]
    endings = process.run_together(argvs, deadline_s=deadline_s)
    return [
        _answer(engine, ending, features, deadline_s) for engine, ending in zip(engines, endings, strict=True)
    ]


def _argv(engine: Engine, interpreter: str) -> list[str]:
    return [interpreter, "-P", "-c", _WRAPPER, engine.probe_code()]


def _answer(
    engine: Engine, ending: process.Ending, features: Collection[str], deadline_s: float
) -> Availability:
    answer = _last_object(ending.stdout)
    if ending.timed_out:
        return _unavailable(engine, f"gave no sign of life within {deadline_s:g} s")
    if ending.returncode != 0:
        status, text = process.describe_exit(
            ending.returncode, oom_killed=ending.oom_killed, log_tail=ending.log_tail
        )
        if status is TrialStatus.ILLEGAL_INSTRUCTION:
            return _unavailable(engine, _too_new(features))
        last = ending.log_tail.rpartition("\n")[2]
        return _unavailable(engine, f"crashed when it was tried: {text}{': ' if last else ''}{last}")
    if "missing" in answer:
        return _unavailable(engine, _missing(engine, str(answer["missing"])))
    if "error" in answer:
        # A loader's error names the library at its end, after what led to it.
        return _unavailable(engine, str(answer["error"]).strip().rpartition("\n")[2])
    if "version" not in answer:
        return _unavailable(engine, "its probe ended without saying a version")
    return Availability(
        engine.name,
        available=True,
        version=str(answer["version"]),
        build=_text(answer.get("build")),
        unsafe=tuple((str(name), value) for name, value in cast("Any", answer.get("unsafe", ()))),
        note=_text(answer.get("note")),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _unavailable(engine: Engine, reason: str) -> Availability:
    return Availability(engine.name, False, reason=reason)


COMPILED = frozenset({"llama_cpp"})
"""Engines whose packages come as source code only."""


def _missing(engine: Engine, module: str) -> str:
    if engine.name in BUILT_IN:
        extra = engine.name.replace("_", "-")
        needs = " (compiled on your machine: needs a C and a C++ compiler)" if engine.name in COMPILED else ""
        return f"the package of '{module}' is not installed: pip install 'cputune[{extra}]'{needs}"
    return f"the package of '{module}' is not installed"


def _too_new(features: Collection[str]) -> str:
    lacking = [name for name in _OFTEN_NEEDED if name not in features] if features else []
    named = f" (no {', '.join(lacking)})" if lacking else ""
    return (
        f"this build needs instructions that the CPU lacks{named}; rebuild it on this machine"
        " (pip install --force-reinstall --no-cache-dir --no-binary :all: PACKAGE),"
        " or set the virtual machine's CPU type to 'host'"
    )


def _last_object(stdout: bytes) -> dict[str, object]:
    """The last line that is a JSON object; an engine may print what it likes before it."""
    for line in reversed(stdout.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}
