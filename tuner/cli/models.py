"""`cputune models`: the models this store knows, and their variants."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tuner.cli import exit_codes
from tuner.cli.options import AsJson, Storage

app = typer.Typer(
    help="List, add, pull, prepare and remove models.", no_args_is_help=True, rich_markup_mode=None
)


@app.command(name="list")
def list_models(
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """List the registered models and the variants that were made of them."""
    from tuner.cli.output import print_json, say
    from tuner.home import Home
    from tuner.opening import known_store

    with known_store(Home.find(), storage) as store:
        rows = [
            {
                **record.info.to_json(),
                "name": record.name,
                "source": record.source,
                "variants": list(dict.fromkeys(v.label for v in store.variants(record.info.digest))),
            }
            for record in store.models()
        ]
    if as_json:
        print_json({"models": rows})
    elif not rows:
        typer.echo(
            "No model is registered: cputune search uses the demo model. Add one: cputune models add X.gguf"
        )
    else:
        say(line for row in rows for line in _lines(row))


def _lines(row: dict[str, Any]) -> Iterator[str]:
    yield row["name"]
    yield (
        f"  {row['architecture']}, {row['parameter_count'] / 1e6:.0f} M parameters,"
        f" {row['bits_per_weight']:.2f} bits/weight, {row['file_bytes'] / 2**20:.0f} MiB"
    )
    yield f"  {row['source']}"
    if row["variants"]:
        yield f"  variants: {' '.join(row['variants'])}"


@app.command()
def add(
    source: Annotated[
        str,
        typer.Argument(
            help="A .gguf file (any part of a split one), a folder (of Hugging Face with safetensors, of ONNX"
            " Runtime GenAI, of OpenVINO), package:MODULE[/PATH], hf:OWNER/REPO[:FILE], ms:OWNER/REPO[:FILE],"
            " or shape:NAME for random weights of a published shape."
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="The name to register it under [default: the file's].")
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Check a model and register it; weights that are registered already keep their name."""
    from tuner.cli.output import print_json
    from tuner.cli.progress import Progress
    from tuner.home import Home
    from tuner.opening import store_to_write
    from tuner.setup import add_model

    home = Home.find()
    with Progress() as progress, store_to_write(home, storage, progress.observe) as store:
        found, model = add_model(store, home, source, name, refresh=True)
    if as_json:
        print_json({**model.to_json(), "source": found.spec})
    else:
        typer.echo(
            f"{model.name}: {model.architecture}, {model.parameter_count / 1e6:.0f} M parameters,"
            f" {model.bits_per_weight:.2f} bits/weight."
            f" Next: cputune search --model {shlex.quote(model.name)}"
        )


@app.command()
def pull(
    source: Annotated[
        str,
        typer.Argument(help="As of models add: hf:OWNER/REPO[:FILE], ms:OWNER/REPO[:FILE], a file, ..."),
    ],
    name: Annotated[
        str | None, typer.Option(help="The name to register it under [default: the file's].")
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Bring a model's files into the data folder and register it from there.

    It then no longer needs the hub's cache, or the disk that it came from.
    """
    from tuner.cli.output import print_json
    from tuner.cli.progress import Progress
    from tuner.home import Home
    from tuner.library import pull as bring
    from tuner.opening import store_to_write

    home = Home.find()
    with Progress() as progress, store_to_write(home, storage, progress.observe) as store:
        found, model = bring(store, home, source, name)
    if as_json:
        print_json({**model.to_json(), "source": found.spec, "pulled_from": source})
    else:
        folder = found.path if found.path.is_dir() else found.path.parent
        typer.echo(
            f"{model.name}: {found.file_bytes / 2**20:.0f} MiB in {folder}."
            f" Next: cputune search --model {shlex.quote(model.name)}"
        )


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="A registered name.")],
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Forget a model, with the variants that were made of it.

    Its own file is deleted only where cputune pulled or generated it; a file of yours never is. Searches and
    profiles of it stay in the history, and count again once the model is added again.
    """
    from dataclasses import asdict

    from tuner.cli.output import print_json
    from tuner.home import Home
    from tuner.library import remove as forget
    from tuner.opening import known_store

    home = Home.find()
    with known_store(home, storage) as store:
        removed = forget(store, home, name)
    if as_json:
        print_json(asdict(removed))
        return
    count = len(removed.files)
    typer.echo(
        f"{removed.name} is removed: {count} {'file' if count == 1 else 'files'} deleted,"
        f" {removed.freed_bytes / 2**20:.0f} MiB freed."
    )
    if removed.kept_file is not None:
        typer.echo(f"Its own file is not cputune's, it stays: {removed.kept_file}")
    if removed.in_use:
        typer.echo(f"{removed.in_use} made variants are in use and stay until they are dropped for room.")
    if removed.in_history:
        typer.echo("Its searches and profiles stay in the history; add the model again to use them.")


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="A registered name or a source.")],
    variants: Annotated[
        str | None, typer.Option(help="Variants to make, separated by commas [default: all].")
    ] = None,
    engines: Annotated[str | None, typer.Option(help="Engines to make them for.")] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> int:
    """Make variants of a model before a search wants them; ends with 1 when one can't be made."""
    from tuner.cli.output import print_json, show, table
    from tuner.cli.progress import Progress
    from tuner.cli.search import split_names
    from tuner.home import Home
    from tuner.setup import prepare_variants

    with Progress() as progress:
        made = prepare_variants(
            Home.find(),
            name,
            split_names("--engines", engines),
            split_names("--variants", variants),
            progress.observe,
            storage,
        )
    if as_json:
        print_json({"variants": made})
    else:
        columns = ("engine", "variant", ">bits/weight", ">MiB", "note")
        show(table(None, columns, map(_variant_row, made)))
    return exit_codes.FAILED if any(row["reason"] for row in made) else exit_codes.DONE


def _variant_row(row: dict[str, Any]) -> tuple[str, ...]:
    if row["reason"]:
        return row["engine"], row["variant"], "-", "-", row["reason"]
    size = f"{row['file_bytes'] / 2**20:.0f}"
    return row["engine"], row["variant"], f"{row['bits_per_weight']:.2f}", size, ""
