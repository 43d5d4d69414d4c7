"""`cputune daemon` and `cputune rollback`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import AsJson, Storage


def daemon(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="Settings; it is read again when it changes.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on [default: 127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one [default: 8765].")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A registered model [default: the demo model].")
    ] = None,
    workload: Annotated[str | None, typer.Option(help="What it tunes for [default: chat].")] = None,
    engine: Annotated[
        str | None, typer.Option(help="The only engine to use [default: installed ones].")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that requests must carry; needed beyond loopback."),
    ] = None,
    no_generator: Annotated[
        bool, typer.Option("--no-generator", help="Keep the profile right, and run no generator.")
    ] = False,
    no_watch: Annotated[
        bool, typer.Option("--no-watch", help="Run what was promoted, and measure nothing.")
    ] = False,
    hours: Annotated[
        list[str] | None,
        typer.Option(metavar="FROM-TO", help="When it may measure, like 22:00-06:00 [default: any time]."),
    ] = None,
    daily_minutes: Annotated[
        float | None, typer.Option(metavar="N", help="Time a day for measuring [default: 60].")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(metavar="text|json", help="Log lines for people or for programs.")
    ] = None,
) -> None:
    """Serve as `cputune serve` does, and keep what is served right.

    When what decides speed has changed, or the running profile got slower, it searches anew while the machine
    is quiet. Another profile is run once it is shown to be faster side by side. Every option can come from
    the file or the environment, such as CPUTUNE_DAEMON_PORT.
    """
    from service.app import create_app
    from service.daemon.daemon import Daemon
    from service.daemon.logs import set_up
    from service.daemon.owner import state_lock
    from service.daemon.routes import router_of
    from service.daemon.settings import Configuration
    from service.generator.launching import check_wanted
    from service.server import run
    from tuner.home import Home

    home = Home.find()
    given = {
        "host": host,
        "port": port,
        "model": model,
        "workload": workload,
        "engine": engine,
        "token_file": token_file,
        "generator": False if no_generator else None,
        "watch": False if no_watch else None,
        "hours": tuple(hours) if hours else None,
        "daily_minutes": daily_minutes,
        "log_format": log_format,
    }
    with state_lock(home):
        configuration = Configuration(config, given, home)
        settings = configuration.current
        settings.secret()
        check_wanted(settings, home)
        set_up(settings.log_format)
        watching = Daemon(configuration)
        run(create_app(settings, home, watching.keep, [router_of(watching)]), settings)


def rollback(
    reason: Annotated[str, typer.Option(help="Why; it stands in the history.")] = "asked for by command",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Of this model [default: the last that changed].")
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Give up the profile that a daemon runs on this machine for the one before it.

    A running daemon changes over within seconds, without dropping a request. The profile that is given up
    stays out until a search finds another one.
    """
    from probes.machine import probe
    from profiles.errors import NotFoundError
    from profiles.store import Store
    from service.daemon.promotion import roll_back
    from tuner.cli.output import print_json
    from tuner.history import promotion_row
    from tuner.home import Home

    with Store.open(storage or Home.find().database) as store:
        digest = None if model is None else store.model(model).info.digest
        found = store.promotions(fingerprint=probe().fingerprint, model_digest=digest, limit=1)
        if not found:
            raise NotFoundError("nothing was promoted on this machine yet", hint="cputune daemon promotes")
        row = promotion_row(roll_back(store, found[0], reason))
    if as_json:
        print_json({"promotion": row})
    else:
        again = f"{row['running']} runs" if row["running"] else "the engine's defaults run"
        typer.echo(f"{row['other']} is given up: {again} again")
