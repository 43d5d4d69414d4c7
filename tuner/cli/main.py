"""The `cputune` program: its table of commands, and errors as one line each."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from types import FrameType, TracebackType

import typer
from typer.exceptions import TyperException

from probes.errors import CputuneError
from tuner.cli import exit_codes

GO_ON = "interrupted; what was finished is kept: the same command (without --fresh) goes on from there"

COMMANDS: Mapping[str, str] = {
    "probe": "tuner.cli.probe:probe",
    "engines": "tuner.cli.engines:engines",
    "models": "tuner.cli.models:app",
    "search": "tuner.cli.search:search",
    "recommend": "tuner.cli.recommend:recommend",
    "compare": "tuner.cli.compare:compare",
    "show": "tuner.cli.show:show",
    "plot": "tuner.cli.plot:plot",
    "history": "tuner.cli.history:history",
    "export": "tuner.cli.export:export",
    "verify": "tuner.cli.verify:verify",
    "invalidate": "tuner.cli.invalidate:invalidate",
    # The one reference to a package above: by name, so that this one does not import it.
    "serve": "service.commands:serve",
    "daemon": "service.daemon.commands:daemon",
    "rollback": "service.daemon.commands:rollback",
    "db": "tuner.cli.db:app",
    "doctor": "tuner.cli.doctor:doctor",
}
"""Name -> "module:function", or a group of commands, in the order of the help."""


def application(wanted: str | None = None) -> typer.Typer:
    """The program with all commands, or with `wanted` alone where that is one: making all takes longer than
    many a command."""
    made = typer.Typer(
        name="cputune",
        help=_root.__doc__,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    made.callback()(_root)
    one = COMMANDS.get(wanted or "")
    for name, place in COMMANDS.items():
        if one not in (None, place):
            continue
        module, _, attribute = place.partition(":")
        part = getattr(import_module(module), attribute)
        if isinstance(part, typer.Typer):
            made.add_typer(part, name=name)
        else:
            made.command(name)(part)
    return made


def _root() -> None:
    """Find the engine, quantization and settings that make a language model answer fastest on this CPU."""


def main() -> None:
    """Run the program; every error is one line on stderr and the right exit code."""
    _hold_closed_streams()
    sys.excepthook = _report_fault
    # Before numpy is loaded: a pool of BLAS threads of our own would disturb the rounds.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What a command imports is kept to its end: looking through it again and again takes a tenth of its time.
    gc.set_threshold(50_000)
    terminated: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        terminated.append(number)
        raise KeyboardInterrupt

    # As Ctrl-C, under an exit code of its own: what was finished is kept, workers end, the line says so.
    signal.signal(signal.SIGTERM, end)
    code = run(sys.argv[1:])
    # Else the interpreter looks through all that was imported once more before it ends.
    gc.freeze()
    sys.exit(exit_codes.TERMINATED if terminated and code == exit_codes.INTERRUPTED else code)


def _hold_closed_streams() -> None:
    """Take the place of streams that are closed: a database opened there would get what is printed."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def run(arguments: list[str]) -> int:
    """The exit code of one call."""
    try:
        _check_text(*arguments, os.environ.get("CPUTUNE_HOME", ""))
        # Not app(...): that would put Typer's own handler of exceptions in the place of ours.
        command = typer.main.get_command(application(next(iter(arguments), None)))
        result = command.main(args=arguments, prog_name="cputune", standalone_mode=False)
    except TyperException as error:
        return _fail(_explained(error, arguments), exit_codes.ARGUMENTS)
    except CputuneError as error:
        return _fail(str(error), exit_codes.code_of(error))
    except OSError as error:
        return _fail(
            f"the system refused {error.filename or 'a file or process'}: {error.strerror or error};"
            f" check free space, limits and the rights of user id {os.geteuid()}",
            exit_codes.FAILED,
        )
    except (KeyboardInterrupt, typer.Abort):
        return _fail(GO_ON, exit_codes.INTERRUPTED)
    if result == exit_codes.INTERRUPTED:
        # Typer turns Ctrl-C within a command into this number, without a word.
        return _fail(GO_ON, exit_codes.INTERRUPTED)
    return result if isinstance(result, int) else exit_codes.DONE


def _check_text(*texts: str) -> None:
    """Raise UsageError for a text that is not UTF-8: neither the store nor JSON could hold it."""
    from tuner.errors import UsageError

    for text in texts:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UsageError(f"{text!r} is not UTF-8 text: only such names can be stored; rename the file")


def _explained(error: TyperException, arguments: list[str]) -> str:
    """The error of the command line as one line, with the value seen and where to read on."""
    text = error.format_message().strip().removesuffix(".")
    if text.startswith("Usage:") or "ossible options: " in text or "Did you mean" in text:
        return text
    names = getattr(getattr(error, "param", None), "opts", ())
    seen = next((value for name, value in pairwise(arguments) if name in names), None)
    got = "" if seen is None or f"'{seen}'" in text else f"; got '{seen}'"
    path = getattr(getattr(error, "ctx", None), "command_path", "cputune")
    return f"{text}{got}; see {path} --help"


def _report_fault(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A fault of ours: the traceback goes to a file, the user gets one line."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="cputune-fault-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(kind, error, trace)))
        where = f"is in {file.name}"
    except OSError as refused:
        where = f"could not be written down ({refused.strerror})"
    first = (str(error).splitlines() or [""])[0]
    with suppress(OSError):
        typer.echo(
            f"cputune: a fault of cputune's own: {kind.__name__}: {first}; what led to it {where}, please"
            " report it",
            err=True,
        )


def _fail(message: str, code: int) -> int:
    first = message.strip() or "no command given"
    # The exit code still tells where stderr is full or gone.
    with suppress(OSError):
        typer.echo(first if first.startswith("Usage:") else f"cputune: {first}", err=True)
    return code


if __name__ == "__main__":
    main()
