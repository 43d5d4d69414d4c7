"""`cputune db`: the database that everything is kept in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import exit_codes
from tuner.cli.options import AsJson, Storage

if TYPE_CHECKING:
    from profiles.store.taken import Taken

app = typer.Typer(
    help="Check, back up, upgrade and move what is stored.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def check(storage: Storage = None, as_json: AsJson = False) -> int:
    """Check that the database is whole and that the files it speaks of are there.

    Nothing is changed. Ends with 1 only if the database is damaged.
    """
    from dataclasses import asdict

    from tuner.cli.output import print_json, say
    from tuner.home import Home
    from tuner.storecheck import check as look

    home = Home.find()
    found = []
    for finding in look(home, storage or home.database):
        found.append(finding)
        if not as_json:
            fix = f"; {finding.fix}" if finding.fix else ""
            say([f"{finding.state:<9}{finding.message}{fix}"])
    sound = all(finding.state != "damaged" for finding in found)
    if as_json:
        print_json({"checks": [asdict(finding) for finding in found], "sound": sound})
    return exit_codes.DONE if sound else exit_codes.FAILED


@app.command()
def backup(
    target: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A new file, or a folder [default: beside the database]."),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Copy the database as it is now, also while a search writes to it."""
    from tuner.cli.output import print_json
    from tuner.home import Home
    from tuner.keeping import back_up

    made = back_up(storage or Home.find().database, target)
    if as_json:
        print_json({"backup": str(made), "bytes": made.stat().st_size})
    else:
        typer.echo(f"{made} ({made.stat().st_size / 2**20:.1f} MiB)")


@app.command()
def upgrade(storage: Storage = None, as_json: AsJson = False) -> None:
    """Bring an older database to this program's schema, after a backup.

    Every command does that when it opens the database. A newer program's database is refused and not touched.
    """
    from profiles.migrations import LATEST
    from tuner.cli.output import print_json
    from tuner.home import Home
    from tuner.keeping import upgraded

    done = upgraded(storage or Home.find().database)
    if as_json:
        kept = None if done.backup is None else str(done.backup)
        print_json({"before": done.before, "after": LATEST, "backup": kept})
    elif done.before == LATEST:
        typer.echo(f"Nothing to do: the schema is {LATEST}, the newest.")
    else:
        where = f"; the old one is kept as {done.backup}" if done.backup else ""
        typer.echo(f"Upgraded from schema {done.before} to {LATEST}{where}.")


@app.command(name="export")
def export_bundle(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY|PROFILE|MACHINE]...",
            help="Ids or names; a study comes with its samples and profiles [default: everything].",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a new file, not to stdout.")
    ] = None,
    storage: Storage = None,
) -> None:
    """Write machines, models, studies with their samples, and profiles for another store.

    One JSON document a line; `cputune db import` reads them.
    """
    from tuner.home import Home
    from tuner.keeping import bundle_lines, write_new

    lines = bundle_lines(storage or Home.find().database, names or ())
    if out is None:
        for line in lines:
            typer.echo(line, nl=False)
        return
    count = write_new(out, lines)
    typer.echo(f"{out}: {count - 2} documents", err=True)


@app.command(name="import")
def import_bundle(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What db export wrote, or probe --json; - for stdin.")
    ],
    storage: Storage = None,
    as_json: AsJson = False,
) -> int:
    """Take over what another store exported.

    What is here already stays and nothing is stored twice. A damaged file is refused before anything is
    stored. Ends with 1 if something could not be taken over, such as a study that went on in both stores.
    """
    from dataclasses import asdict

    from tuner.cli.output import print_json, say
    from tuner.home import Home
    from tuner.keeping import take_over

    taken = take_over(storage or Home.find().database, file)
    refused = [one for one in taken if one.outcome == "refused"]
    if as_json:
        print_json({"taken": [asdict(one) for one in taken], "refused": len(refused)})
    else:
        say(report(taken))
    return exit_codes.FAILED if refused else exit_codes.DONE


def report(taken: list[Taken]) -> list[str]:
    """What became of everything, in words: a line each for what needs a word."""
    lines = [
        f"{one.what} {one.name} {'not taken over' if one.outcome == 'refused' else one.outcome}: {one.note}"
        for one in taken
        if one.note
    ]
    for outcome, word in (("added", "Added"), ("extended", "Extended"), ("known", "Here already")):
        counts: Counter[str] = Counter()
        for one in taken:
            if one.outcome == outcome:
                counts[one.what] += int(one.name) if one.name.isdecimal() else 1
        if counts:
            lines.append(f"{word}: " + ", ".join(f"{_many(n, what)}" for what, n in counts.items()) + ".")
    return lines or ["The file holds nothing."]


def _many(count: int, what: str) -> str:
    one = what.removesuffix("s")
    if count == 1:
        return f"1 {one}"
    return f"{count} {one.removesuffix('y')}{'ies' if one.endswith('y') else 's'}"
