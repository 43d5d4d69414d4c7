"""`cputune engines`: which engines run here, and why the others don't."""

from __future__ import annotations

from typing import Any

from tuner.cli.options import AsJson


def engines(as_json: AsJson = False) -> None:
    """Show which engines run here, and why the others don't."""
    from tuner.cli.output import print_json, show, table
    from tuner.engines import get, references
    from tuner.measurement.availability import availabilities

    rows: list[dict[str, Any]] = []
    every = {name: get(name) for name in references()}
    for (name, engine), found in zip(every.items(), availabilities(tuple(every.values())), strict=True):
        rows.append(
            {
                "name": name,
                "available": found.available,
                "version": found.version,
                "build": found.build,
                "reason": found.reason,
                "note": found.note,
                "variants": list(engine.variant_labels),
            }
        )
    if as_json:
        print_json({"engines": rows})
        return
    show(table(None, ("engine", "", "version", "variants", "note"), map(_row, rows)))


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    runs = "runs" if row["available"] else "no"
    return (
        row["name"],
        runs,
        row["version"] or "-",
        " ".join(row["variants"]),
        row["reason"] or row["note"] or "",
    )
