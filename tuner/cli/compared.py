"""Comparisons that were measured earlier, as text that fits into 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]


def comparison_lines(rows: Sequence[Document]) -> Iterator[str]:
    """A line for each comparison; nothing without any."""
    if rows:
        yield ""
        yield "Comparisons:"
    for row in rows:
        when = row["started_at"][:16].replace("T", " ")
        asked = f"{row['model']}, {row['workload']}"
        yield f"  {row['comparison']:<6} {when}  {asked}: {verdict(row)}"


def verdict(row: Document) -> str:
    """What a comparison showed, in a few words."""
    ratio = row["ratio"]
    if ratio is None:
        return "not ended"
    return f"a/b {ratio['estimate']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f}), {_words(row)}"


def shown(document: Document) -> Iterator[str]:
    """One comparison in full: both sides, the verdict, the pairs."""
    from profiles.metrics import METRICS, base_name
    from tuner.cli.render import settings_line

    metric = METRICS[base_name(document["metric"])]
    machine = document["machine"]
    yield f"{document['model']}, {document['workload']} on {machine['label'] or machine['fingerprint'][:8]}"
    yield f"{document['comparison']} of {document['started_at']}, study {document['study']}"
    for name, base in (("a", {}), ("b", document["a"]["config"])):
        side = document[name]
        value = "-" if side["value"] is None else metric.format(side["value"])
        yield f"{name}  {side['engine']} {side['variant']}  {document['metric']} {value}"
        yield f"   {settings_line(side['config'], base, 'as a')}"
    ratio = document["ratio"]
    if ratio is None:
        yield f"Not ended: {document['pairs']} pairs of processes so far."
    else:
        yield (
            f"{document['metric']}: a over b is {ratio['estimate']:.3f} ({ratio['low']:.3f} to"
            f" {ratio['high']:.3f} at {100 * ratio['confidence']:.1f} %): {_words(document)}."
        )
    for number, (a, b) in enumerate(document["values"], start=1):
        yield f"  pair {number:>2}  {metric.format(a):>12}  {metric.format(b):>12}  {a / b:.3f}"


def _words(document: Document) -> str:
    verdict = document["verdict"]
    return {"a": "a is better", "b": "b is better"}.get(verdict, verdict or "not resolved")
