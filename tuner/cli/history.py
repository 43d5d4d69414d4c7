"""`cputune history`: the searches of this store, newest first."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def history(
    limit: Annotated[int, typer.Option(min=1, help="How many searches to list.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the searches of this store, the last changed first."""
    from profiles.store import Store
    from tuner.cli.output import print_json, show, table
    from tuner.home import Home

    with Store.open(Home.find().database) as store:
        studies = store.studies(limit=limit)
        counts = store.trial_counts([study.id for study in studies])
    rows = [
        {
            "study": study.id,
            "name": study.name,
            "status": str(study.status),
            "workload": study.workload.name,
            "quality": study.quality_level,
            "updated_at": study.updated_at.isoformat(timespec="seconds"),
            "trials": sum(counts[study.id].values()),
            "speedup": study.result.get("speedup"),
            "profile_id": _best(study.result).get("profile_id"),
        }
        for study in studies
    ]
    if as_json:
        print_json({"studies": rows})
    elif not rows:
        typer.echo("No search has been run here yet. Start with: cputune search")
    else:
        columns = ("study", "name", "status", "quality", ">trials", ">speed-up", "profile", "changed")
        show(table(None, columns, map(_row, rows)))


def _best(result: Any) -> dict[str, Any]:
    return dict(result.get("best") or {})


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    speedup = row["speedup"]
    return (
        row["study"],
        row["name"],
        row["status"],
        row["quality"],
        str(row["trials"]),
        f"{speedup['ratio']:.2f}x" if speedup else "-",
        row["profile_id"] or "-",
        row["updated_at"],
    )
