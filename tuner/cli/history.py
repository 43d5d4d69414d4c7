"""`cputune history`: the searches of this store by question, and what changed from one to the next."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from tuner.cli.options import AsJson, Storage

NOTHING = "No search has been run here yet. Start with: cputune search"
NO_MATCH = "Nothing here matches: cputune history lists everything."
BLOCKS = ("▁▂▃▄▅▆▇█", "_.-=+*%#")
"""Of a trend, the smallest value first; the second where the terminal has no such signs."""
HEAD = f"  {'study':<9} {'status':<11} {'trials':>6} {'best':>12} {'speed-up':>8} {'profile':<8} changed"


def history(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Only searches of this model: its name or digest.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Only searches on this machine: its host name or fingerprint.")
    ] = None,
    workload: Annotated[str | None, typer.Option(help="Only searches of this workload: its name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many searches to list.")] = 20,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="What is not the same in two searches: ids of studies or profiles."),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """List the searches of this store.

    They stand by what was asked, the last changed first, with the trend of the answers. Under a search
    stands what is not as in the one before: engine build, kernel, settings, numbers. Below stand the
    comparisons, and what a daemon promoted, refused and rolled back, and why.
    """
    from tuner import history as past
    from tuner.cli.compared import comparison_lines
    from tuner.cli.output import print_json, say
    from tuner.compared import comparisons
    from tuner.home import Home
    from tuner.opening import known_store

    with known_store(Home.find(), storage) as store:
        if diff is not None:
            document = past.difference(store, *diff)
        else:
            rows = past.searches(store, model=model, machine=machine, workload=workload, limit=limit)
            filters = {"model": model, "machine": machine, "workload": workload}
            decided = past.promotions(store, **filters, limit=limit)
            compared = comparisons(store, **filters, limit=limit)
            document = {"studies": rows, "promotions": decided, "comparisons": compared}
    if as_json:
        print_json(document)
    elif diff is not None:
        _print(difference(document))
    elif not (rows or compared or decided):
        is_filtered = any(value is not None for value in filters.values())
        typer.echo(NO_MATCH if is_filtered else NOTHING)
    else:
        if rows:
            _print(listing(past.questions(rows)))
        say(comparison_lines(compared))
        _print(decisions(decided))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


def listing(questions: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Lines of at most 80 characters, but for names that are longer."""
    yield HEAD
    for rows in questions.values():
        yield ""
        yield from _folded(heading(rows[0]), "")
        line = trend(rows)
        if line:
            yield f"  {line}"
        for row in rows:
            yield _line(row)
            if row["invalidated"]:
                yield from _folded(f"not to be trusted: it {row['invalidated']}", " " * 12)
            if row["changes"]:
                told = "; ".join(map(change, row["changes"]))
                yield from _folded(f"since the one before: {told}", " " * 12)


def decisions(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What a daemon promoted, refused and rolled back: when, what, and why."""
    if not rows:
        return
    yield ""
    yield "What the daemon decided:"
    for row in rows:
        running, other = row["running"] or "the defaults", row["other"] or "the defaults"
        what = {
            "promoted": f"promoted {running} over {other}",
            "refused": f"refused {other}, {running} stays",
            "rolled_back": f"rolled back from {other} to {running}",
        }[row["action"]]
        yield from _folded(f"{row['at'][:16].replace('T', ' ')} {what}: {row['reason']}", "  ")


def heading(row: Mapping[str, Any]) -> str:
    """What was asked, and where."""
    machine = row["machine"]
    limits = "".join(f", {limit}" for limit in row["limits"])
    return (
        f"{row['model']}, {row['workload']}, {row['objective']}, {row['quality']}{limits}"
        f" on {machine['label'] or 'a machine'} ({machine['fingerprint'][:8]})"
    )


def trend(rows: Sequence[Mapping[str, Any]]) -> str:
    """The objective over time, the oldest first; nothing where there are fewer than two."""
    from profiles.metrics import METRICS, base_name
    from tuner.history import levels

    values = [row["value"] for row in reversed(rows) if row["value"] is not None]
    if len(values) < 2:
        return ""
    signs = BLOCKS[0] if _can_print(BLOCKS[0]) else BLOCKS[1]
    shown = values[-40:]
    bar = "".join(signs[level] for level in levels(shown, len(signs)))
    metric = METRICS[base_name(rows[0]["objective"])]
    percent = 100 * (values[-1] / values[0] - 1) if values[0] else 0.0
    return f"{bar}  {metric.format(values[0])} -> {metric.format(values[-1])} ({percent:+.0f} %)"


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _line(row: Mapping[str, Any]) -> str:
    from profiles.metrics import METRICS, base_name

    value, speedup = row["value"], row["speedup"]
    best = "-" if value is None else METRICS[base_name(row["objective"])].format(value)
    claimed = speedup and row["status"] != "no_gain"
    ratio = f"{speedup['ratio']:.2f}x" if claimed else "-"
    return (
        f"  {row['study']:<9} {row['status']:<11} {row['trials']:>6} {best:>12} {ratio:>8}"
        f" {row['profile_id'] or '-':<8} {row['updated_at'][:16].replace('T', ' ')}"
    )


def difference(document: Mapping[str, Any]) -> Iterator[str]:
    """Two searches, and a line for each thing that is not the same."""
    for side in ("a", "b"):
        row = document[side]
        yield f"{side}: {row['study']} ({row['name']}), {row['status']}, {row['updated_at'][:16]}"
    if not document["same_question"]:
        yield "They answer different questions: their numbers can't be compared as they are."
    if not document["changes"]:
        yield "Nothing is different."
    for one in document["changes"]:
        yield from _folded(change(one), "  ")


def change(one: Mapping[str, Any]) -> str:
    """A change in a few words; a number of a metric with its unit and by how much."""
    from profiles.metrics import METRICS, base_name, is_metric

    what, before, after = one["what"], one["before"], one["after"]
    numbers = isinstance(before, int | float) and isinstance(after, int | float)
    if not is_metric(what) or not numbers or isinstance(before, bool):
        return f"{what} {_shown(before)} -> {_shown(after)}"
    metric = METRICS[base_name(what)]
    percent = f" ({100 * (after / before - 1):+.1f} %)" if before else ""
    return f"{what} {metric.format(before)} -> {metric.format(after)}{percent}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None else str(value)


def _folded(text: str, indent: str) -> Iterator[str]:
    import textwrap

    yield from textwrap.wrap(
        text, width=80, initial_indent=indent, subsequent_indent=indent or "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
