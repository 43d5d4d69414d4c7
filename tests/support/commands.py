"""Runs the program as a process of its own, as a shell does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from typing import Any

from tuner import process


def argv(*arguments: str) -> list[str]:
    """The command line of the program from this checkout."""
    return process.python_argv("tuner.cli.main", *arguments)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment in which the packages are found, with some more of it."""
    return process.python_environment({**os.environ, **(more or {})})


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, at most a minute."""
    return subprocess.run(
        argv(*arguments),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def begin(*arguments: str, closed: Collection[int] = (), **options: Any) -> subprocess.Popen[str]:
    """Start the program with its output on pipes, and with SIGINT as a terminal's foreground has it.

    Where the tests run in a shell's background, SIGINT is ignored, and a child would inherit that. `closed`
    are the streams that it does not have.
    """
    fitting = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}

    def set_up() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for number in closed:
            os.close(number)

    return subprocess.Popen(argv(*arguments), env=environment(), text=True, preexec_fn=set_up, **fitting)


def loaded_by(*arguments: str) -> set[str]:
    """The top-level modules that one call of the program has loaded when it ends."""
    code = (
        "import sys\n"
        "from tuner.cli.main import run\n"
        f"code = run({list(arguments)!r})\n"
        "sys.stderr.write('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))\n"
        "sys.exit(code)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(ended.stderr.splitlines()[-1].split())
