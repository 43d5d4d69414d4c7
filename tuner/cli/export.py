"""`cputune export`: a profile as flags, a snippet, variables or a document."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import Storage


def export(
    profile: Annotated[str, typer.Argument(help="A profile's id, or its beginning.")],
    target: Annotated[
        str, typer.Option("--format", "-f", help="llama-server, llama-cpp-python, ollama, env, yaml or json.")
    ] = "llama-server",
    storage: Storage = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print a profile as something that starts it elsewhere.

    What the target can't express is said in a comment.
    """
    from tuner.cli.progress import Progress
    from tuner.export import FORMATS
    from tuner.export import export as write
    from tuner.handout import launch_of
    from tuner.home import Home
    from tuner.narrowing import check_names

    wanted = "json" if as_json else target
    check_names("format", (wanted,), tuple(FORMATS))
    with Progress() as progress:
        launch = launch_of(profile, Home.find(), progress.observe, storage=storage)
    typer.echo(write(launch, wanted).rstrip("\n"))
