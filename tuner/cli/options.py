"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL", envvar="CPUTUNE_STORAGE", help="Database URL or path [default: in the data folder]."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
