"""What a search over several engines found, as tables with why the others lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from profiles.metrics import METRICS, base_name, flat_name
from tuner.cli.output import table

Document = Mapping[str, Any]

TIMES, RATES = ("response_ms", "ttft_ms", "tpot_ms"), ("decode_tps", "ttft_ms")
"""What is shown of speed, by what is searched for; all of it, or units too, are wider than 80 columns."""
TRADED = ("peak_rss_mib", "kl_divergence")
"""What the front weighs speed against."""


def engine_parts(document: Document) -> Iterator[object]:
    """The best of each engine, the ratio to the reference engine and the front of speed, memory and quality;
    nothing where one engine was searched."""
    engines = document.get("engines", ())
    if len(engines) < 2:
        return
    objective = base_name(document["objective"])
    metrics = (*(RATES if METRICS[objective].direction == "maximize" else TIMES), *TRADED)
    shown = [one["best"] or {"engine": one["engine"], "variant": "-", "metrics": {}} for one in engines]
    yield _of_results("The best of each engine by short rounds, times in ms", metrics, shown)
    for one in engines:
        if one["lost"]:
            yield Text(f"{one['engine']} lost: {one['lost']}.")
    reference = document.get("reference")
    if reference:
        yield Text(
            f"{reference['ratio']:.1f}x the speed of {reference['engine']} {reference['variant']} as it"
            " comes, by the search's own rounds."
        )
    yield Text("")
    # Settings move memory by a little: of a variant's members on the front the fastest speaks for it.
    fastest: dict[tuple[str, str], Document] = {}
    for member in document.get("pareto", ()):
        fastest.setdefault((member["engine"], member["variant"]), member)
    if fastest:
        title = "Pareto front of speed, memory and quality, by short rounds"
        yield _of_results(title, (objective, *TRADED), list(fastest.values()))


def _of_results(title: str, metrics: Sequence[str], results: Sequence[Document]) -> object:
    """A line for each result, without the metrics that none of them has."""
    known = [name for name in metrics if any(_value(one, name) is not None for one in results)]
    columns = ("engine", "variant", *(f">{_heading(name)}" for name in known))
    rows = [
        (one["engine"], one["variant"], *(_formatted(name, _value(one, name)) for name in known))
        for one in results
    ]
    # As the table's own title it would be folded where the table is narrow.
    return Group(Text(title, style="bold"), table(None, columns, rows))


def _value(result: Document, name: str) -> float | None:
    metrics: Mapping[str, float] = result["metrics"]
    return metrics.get(flat_name(name))


def _heading(name: str) -> str:
    short = {"kl_divergence": "KL", "peak_rss_mib": "MiB", "decode_tps": "tokens/s"}
    return short.get(name, name.removesuffix("_ms").upper() if name != "response_ms" else "response")


def _formatted(name: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.{METRICS[name].digits}f}"
