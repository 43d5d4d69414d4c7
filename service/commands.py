"""`cputune serve`: the HTTP service with its running generator."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on [default: 127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one [default: 8765].")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A registered model [default: the demo model].")
    ] = None,
    workload: Annotated[str | None, typer.Option(help="Whose best profile is run [default: chat].")] = None,
    profile: Annotated[str | None, typer.Option(help="A profile to run in place of the best one.")] = None,
    no_generator: Annotated[
        bool, typer.Option("--no-generator", help="Serve profiles and history only.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that requests must carry; needed beyond loopback."),
    ] = None,
    context_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Context of one conversation [default: 4096].")
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(metavar="N", help="Requests that run at a time [default: 4].")
    ] = None,
    load_workload: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose best profile takes new requests while others run [none]."),
    ] = None,
    deterministic_cache: Annotated[
        int | None,
        typer.Option(metavar="N", help="Answers kept for equal requests at temperature 0 [default: 0]."),
    ] = None,
) -> None:
    """Serve profiles, history and a running generator over HTTP.

    The generator runs this machine's best profile behind OpenAI-compatible endpoints. Every option can
    come from the environment, such as CPUTUNE_SERVE_PORT.
    """
    from service.app import create_app
    from service.daemon.owner import state_lock
    from service.generator.launching import check_wanted
    from service.server import run
    from service.settings import settings_from
    from tuner.home import Home

    settings = settings_from(
        host=host,
        port=port,
        model=model,
        workload=workload,
        profile=profile,
        generator=False if no_generator else None,
        token_file=token_file,
        context_tokens=context_tokens,
        parallel=parallel,
        load_workload=load_workload,
        deterministic_cache=deterministic_cache,
    )
    home = Home.find()
    settings.secret()
    check_wanted(settings, home)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    with state_lock(home) if settings.generator else nullcontext():
        run(create_app(settings, home), settings)
