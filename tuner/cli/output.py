"""What every command prints: one JSON document, or a table on a terminal."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION = 1


def print_json(document: Mapping[str, object]) -> None:
    """One document under the schema version of the commands, and nothing else, on stdout."""
    dump_json({"schema_version": SCHEMA_VERSION, **document})


def dump_json(document: Mapping[str, object]) -> None:
    """A document that carries its own `schema_version`."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table; columns whose name begins with ">" are set to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        made.add_column(column.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def listing(columns: Sequence[str], rows: Iterable[Sequence[str]], width: int | None) -> Iterator[str]:
    """The lines of a long table, its last column folded at `width`; Rich takes long for 500 rows."""
    import textwrap

    cells = [[column.removeprefix(">") for column in columns], *map(list, rows)]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    for row in cells:
        fixed = zip(columns, row, sizes, strict=False)
        start = "".join(f"{(c.rjust if n[0] == '>' else c.ljust)(size)}  " for n, c, size in fixed)
        if width is None:
            yield start + row[-1]
        else:
            yield from textwrap.wrap(
                row[-1], width=width, initial_indent=start, subsequent_indent=" " * len(start),
                break_long_words=False, break_on_hyphens=False,
            ) or [start.rstrip()]  # fmt: skip


def terminal_width() -> int | None:
    """The columns of the terminal; None where stdout is none: then nothing is folded."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(lines: Iterable[str]) -> None:
    """Print lines; on a terminal folded between words at its width, so that paths and ids stay whole."""
    width = terminal_width()
    for line in lines:
        for part in [line] if width is None else folded(line, width):
            typer.echo(part)


def folded(line: str, width: int = 80) -> Iterator[str]:
    """The line in parts of at most `width` characters; what has no blank in it stays whole."""
    import textwrap

    indent = line[: len(line) - len(line.lstrip())]
    yield from textwrap.wrap(
        line, width=width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    ) or [""]


def show(*parts: object) -> None:
    """Print Rich parts on stdout; as wide as their content where stdout is no terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 200
    for part in parts:
        console.print(part)
