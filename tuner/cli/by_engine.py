"""The best of each engine of a search, as a table with why the others lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from profiles.metrics import METRICS, base_name, flat_name
from tuner.cli.output import table

Document = Mapping[str, Any]

SHOWN = ("response_ms", "ttft_ms", "tpot_ms", "decode_tps", "peak_rss_mib", "kl_divergence")


def engine_parts(document: Document) -> Iterator[object]:
    """The table and the ratio to the reference engine; nothing where one engine was searched."""
    engines = document.get("engines", ())
    if len(engines) < 2:
        return
    metrics = [name for name in SHOWN if any(_value(one, name) is not None for one in engines)]
    columns = ("engine", "variant", *(f">{_heading(name)}" for name in metrics))
    rows = [
        (
            one["engine"],
            (one["best"] or {}).get("variant", "-"),
            *(_formatted(name, _value(one, name)) for name in metrics),
        )
        for one in engines
    ]
    yield table("The best of each engine, by the search's own rounds", columns, rows)
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


def _value(one: Document, name: str) -> float | None:
    metrics: Mapping[str, float] = (one["best"] or {}).get("metrics", {})
    return metrics.get(flat_name(name))


def _heading(name: str) -> str:
    short = {"kl_divergence": "KL", "peak_rss_mib": "MiB", "decode_tps": "tokens/s"}
    return short.get(name, name.removesuffix("_ms").upper() if name != "response_ms" else "response")


def _formatted(name: str, value: float | None) -> str:
    return "-" if value is None else METRICS[base_name(name)].format(value)
