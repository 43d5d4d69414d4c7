"""Reports of a search as tables, from the same documents that --json prints."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from profiles.metrics import METRICS, base_name
from tuner.cli.output import show, table
from tuner.cli.progress import short

COLUMNS: tuple[tuple[str, str], ...] = (
    ("response_ms.p50", ">response"),
    ("ttft_ms.p50", ">TTFT"),
    ("tpot_ms.p50", ">TPOT"),
    ("decode_tps.p50", ">tokens/s"),
    ("peak_rss_mib", ">memory"),
)
QUALITY_COLUMNS: tuple[tuple[str, str], ...] = (("kl_divergence", ">KL"), ("top1_agreement", ">top-1"))
Document = Mapping[str, Any]


def search_report(document: Document) -> None:
    """The answer of a search: a table, the speed-up with its interval, what to do next."""
    rows = [("default", document["baseline"])]
    if document["best"] is not None:
        rows.append(("best", document["best"]))
    rows += [(f"{place}.", result) for place, result in enumerate(document["runners_up"], start=2)]
    heading = f"{document['model']['name']}, {document['workload']['name']} on {document['machine']['label']}"
    show(results_table(heading, rows, document["baseline"]), *(Text(line) for line in conclusion(document)))


def results_table(
    title: str, rows: Sequence[tuple[str, Document]], baseline: Document, same: str = "as the default"
) -> object:
    """One line a configuration; its settings are shown where they differ from the baseline's."""
    columns = (
        "",
        "engine",
        "variant",
        *(name for _, name in COLUMNS),
        ">bits/weight",
        *(n for _, n in QUALITY_COLUMNS),
    )
    others = [result["config"] for _, result in rows if result is not baseline]
    # Of the baseline, only what another line changes; all of it where it stands alone.
    shown = {
        setting
        for setting, value in baseline["config"].items()
        if not others or any(other.get(setting) != value for other in others)
    }
    body = []
    for name, result in rows:
        metrics = result["metrics"]
        body.append(
            (
                name,
                result["engine"],
                result["variant"],
                *(formatted(metrics, metric) for metric, _ in COLUMNS),
                f"{result['bits_per_weight']:.2f}" if result["bits_per_weight"] else "-",
                *(formatted(metrics, metric) for metric, _ in QUALITY_COLUMNS),
                settings_line(
                    result["config"], {} if result is baseline else baseline["config"], same, shown
                ),
            )
        )
    return table(title, (*columns, "settings" if len(rows) == 1 else "settings (changes)"), body)


def formatted(metrics: Mapping[str, float], name: str) -> str:
    """A metric's value with its unit, or a dash."""
    value = metrics.get(name)
    return "-" if value is None else METRICS[base_name(name)].format(value)


def settings_line(
    settings: Mapping[str, Any], base: Mapping[str, Any], same: str, shown: Container[str] | None = None
) -> str:
    """The settings that differ from `base`, in one line; of an empty base, those in `shown`."""
    changed = [
        f"{name}={short(value)}"
        for name, value in settings.items()
        if base.get(name) != value and (base or shown is None or name in shown)
    ]
    return " ".join(changed) or same


def conclusion(document: Document) -> list[str]:
    """What was found, how sure that is, and what to type next."""
    lines = []
    status, speedup = document["status"], document["speedup"]
    if status == "infeasible":
        lines.append("Nothing feasible: no configuration keeps the quality level and the limits.")
        lines += [f"The default does not keep {reason}." for reason in document.get("default_unkept", ())]
        nearest = document.get("nearest")
        if nearest:
            settings = settings_line(nearest["config"], document["baseline"]["config"], "as the default")
            lines.append(f"Nearest: {nearest['engine']} {nearest['variant']} ({settings})")
            lines += [f"  does not keep {broken}" for broken in nearest["broken"]]
        lines.append("Loosen a limit, or look at the trials: cputune show --trials " + document["study"])
        return lines
    if speedup is not None:
        lines.append(speedup_line(status, speedup))
    elif status == "no_gain":
        lines.append("The default is the best that was found; it is published as it is.")
    if document["default_failure"]:
        lines.append(f"The default itself does not run here ({document['default_failure']}):")
        lines.append("compared with the nearest configuration that does.")
    for reason in document.get("default_unkept", ()):
        lines.append(f"The default may not be used: {reason}.")
    if document["conditions"] == "loaded":
        lines.append("Measured under load: other work kept the CPUs busy. Search again on a quiet machine.")
    lines += beside(document)
    trials = document["trials"]
    counted = ", ".join(f"{count} {name}" for name, count in trials.items() if count)
    lines.append(
        f"{counted or 'no'} trials, {document['dropped_rounds']} rounds dropped,"
        f" {document['elapsed_s']:.0f} s; quality is relative to your file."
    )
    lines.append(f"Profile {document['best']['profile_id']} is published. Next:")
    lines.append(f"  cputune show {document['best']['profile_id']}")
    if status == "provisional":
        lines.append("  cputune search --budget 5m      to confirm it")
    lines.append("  cputune search --fresh          to start anew")
    return lines


def beside(document: Document) -> Iterator[str]:
    """The everyday interface's number, and how near the best is to what the memory allows."""
    everyday, ceiling = document.get("everyday"), document.get("ceiling")
    if everyday:
        own = formatted(document["baseline"]["metrics"], "response_ms.p50")
        yield (
            f"The engine's everyday interface, nothing set: {formatted(everyday, 'response_ms.p50')}"
            f" (the default in cputune's own loop: {own})."
        )
    if ceiling:
        yield (
            f"Ceiling of decode: {ceiling['itl_ms']:.2f} ms a token"
            f" ({ceiling['fixed_ms']:.2f} ms fixed + {ceiling['bytes_per_token'] / 1e6:.0f} MB"
            f" at {ceiling['bandwidth_gbps']:.1f} GB/s); {100 * ceiling['reached']:.0f} % of it is reached."
        )


def speedup_line(status: str, speedup: Document) -> str:
    """The ratio with its interval and confidence."""
    claim = {
        "confirmed": "confirmed",
        "provisional": "provisional",
        "no_gain": "no gain shown, the default is published",
    }[status]
    line = (
        f"{speedup['ratio']:.2f}x the speed of the default"
        f" ({speedup['low']:.2f} to {speedup['high']:.2f} at {100 * speedup['confidence']:.1f} %, {claim})"
    )
    return f"{line}."


def comparison_report(document: Document) -> None:
    """Both sides of a comparison, which is better, and how sure that is."""
    a, b = document["a"], document["b"]
    heading = f"{document['model']['name']}, {document['workload']['name']}"
    rows = [(f"a: {a['name']}", a), (f"b: {b['name']}", b)]
    show(results_table(heading, rows, a, "as a"), *(Text(line) for line in comparison_conclusion(document)))


def comparison_conclusion(document: Document) -> list[str]:
    """The verdict with its interval, and what would resolve it."""
    ratio, metric = document["ratio"], document["metric"]
    verdict = {
        "a": f"a ({document['a']['name']}) is better",
        "b": f"b ({document['b']['name']}) is better",
        "no difference": "no difference: they are shown to be within 2 %",
        "not resolved": "not resolved: more pairs are needed",
    }[document["verdict"]]
    interval = f"{ratio['low']:.3f} to {ratio['high']:.3f} at {100 * ratio['confidence']:.1f} %"
    lines = [
        f"{metric}: a over b is {ratio['estimate']:.3f} ({interval}): {verdict}.",
        f"{document['pairs']} pairs of processes, {document['dropped_rounds']} rounds dropped,"
        f" {document['elapsed_s']:.0f} s.",
    ]
    if document["conditions"] == "loaded":
        lines.append("Measured under load: other work kept the CPUs busy.")
    if document["verdict"] == "not resolved":
        lines.append("A longer --budget, or a quiet machine, may resolve it.")
    return lines
