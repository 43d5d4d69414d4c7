"""Reports of a search as tables, from the same documents that --json prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from rich.console import Group
from rich.text import Text

from profiles.metrics import METRICS, base_name
from tuner.cli.by_engine import engine_parts
from tuner.cli.flags import baseline_name, flag_lines, note_lines, the_baseline
from tuner.cli.front import front_parts
from tuner.cli.output import show, table
from tuner.cli.progress import short
from tuner.engines import NEVER_BY_DEFAULT
from tuner.measurement.looks import FEWEST_FOR_A_CLAIM, LOOKS

SHOWN: tuple[tuple[str, str, int], ...] = (
    ("response_ms.p50", "response (ms)", 0),
    ("ttft_ms.p50", "TTFT (ms)", 0),
    ("tpot_ms.p50", "TPOT (ms)", 2),
    ("decode_tps.p50", "decode (tokens/s)", 1),
    ("peak_rss_mib", "peak memory (MiB)", 0),
    ("kl_divergence", "KL divergence", 4),
    ("top1_agreement", "top-1 agreement", 3),
)
"""Metric, name of its line, digits."""
EXPORTED = "llama_cpp"
"""The engine whose profiles `export` writes as a command; of others it writes documents."""
Document = Mapping[str, Any]


def search_report(document: Document) -> None:
    """The answer of a search: a table, the speed-up with its interval, what to do next."""
    rows = [(baseline_name(document), document["baseline"])]
    if document["best"] is not None:
        rows.append(("best", document["best"]))
    rows += [(f"{place}.", result) for place, result in enumerate(document["runners_up"], start=2)]
    heading = f"{document['model']['name']}, {document['workload']['name']} on {document['machine']['label']}"
    same = f"as {the_baseline(document)}"
    answer = results_table(heading, rows, document["baseline"], same)
    parts = (*engine_parts(document), *front_parts(document))
    show(answer, *parts, *(Text(line) for line in conclusion(document)))
    for line in flag_lines(document):
        typer.echo(line)


def results_table(
    title: str, rows: Sequence[tuple[str, Document]], baseline: Document, same: str = "as the default"
) -> object:
    """One column a configuration, so that it fits into 80 characters; the settings stand below it."""
    results = [result for _, result in rows]
    lines = [("variant", *(result["variant"] for result in results))]
    if len({result["engine"] for result in results}) > 1:
        lines.insert(0, ("engine", *(result["engine"] for result in results)))
    bits = (f"{r['bits_per_weight']:.2f}" if r["bits_per_weight"] else "-" for r in results)
    lines.append(("bits per weight", *bits))
    for metric, name, digits in SHOWN:
        values = [result["metrics"].get(metric) for result in results]
        if any(value is not None for value in values):
            lines.append((name, *("-" if v is None else f"{v:.{digits}f}" for v in values)))
    columns = ("", *(f">{name}" for name, _ in rows))
    below = map(Text, settings_lines(rows, baseline, same))
    return Group(Text(title, style="bold"), table(None, columns, lines), *below)


def settings_lines(rows: Sequence[tuple[str, Document]], baseline: Document, same: str) -> Iterator[str]:
    """The baseline's settings in full, and how each other configuration differs from them."""
    width = max(len(name) for name, _ in rows) + 2
    for name, result in rows:
        base = {} if result is baseline else baseline["config"]
        yield f"{name:<{width}}{settings_line(result['config'], base, same)}"
    yield ""


def formatted(metrics: Mapping[str, float], name: str) -> str:
    """A metric's value with its unit, or a dash."""
    value = metrics.get(name)
    return "-" if value is None else METRICS[base_name(name)].format(value)


def settings_line(settings: Mapping[str, Any], base: Mapping[str, Any], same: str) -> str:
    """The settings that differ from `base`, in one line."""
    changed = [f"{name}={short(value)}" for name, value in settings.items() if base.get(name) != value]
    return " ".join(changed) or same


def conclusion(document: Document) -> list[str]:
    """What was found, how sure that is, and what to type next."""
    lines = []
    status, speedup = document["status"], document["speedup"]
    baseline = the_baseline(document)
    the = baseline[0].upper() + baseline[1:]
    if status == "infeasible":
        lines.append(
            "Nothing feasible: no configuration that was tried keeps the quality level and the limits."
        )
        lines += [f"{the} does not keep {reason}." for reason in document.get("default_unkept", ())]
        nearest = document.get("nearest")
        if nearest:
            settings = settings_line(nearest["config"], document["baseline"]["config"], f"as {baseline}")
            lines.append(f"Nearest: {nearest['engine']} {nearest['variant']} ({settings})")
            lines += [f"  does not keep {broken}" for broken in nearest["broken"]]
        tried = sum(document["trials"].values())
        lines.append(f"{tried} configurations were tried; loosen a limit, or give it more time.")
        lines.append(f"  cputune show --trials {document['study']}")
        return lines
    if document.get("measured_now") is False:
        lines.append("This was known: nothing was measured now.")
    if speedup is not None:
        lines.append(speedup_line(status, speedup, baseline))
    elif document["unconfirmed"]:
        instead = "keep it" if document.get("from") else "the default is published"
        lines.append(f"What was found could not be confirmed ({document['unconfirmed']}): {instead}.")
    if document["default_failure"] is not None:
        lines.append(f"{the} itself does not run here ({document['default_failure']}):")
        lines.append("compared with the nearest configuration that does.")
    for reason in document.get("default_unkept", ()):
        lines.append(f"{the} may not be used: {reason}.")
    lines += note_lines(document)
    if document["best"]["engine"] in NEVER_BY_DEFAULT:
        lines.append("These are the simulated engine's made-up numbers: they say nothing about your model.")
    if document["conditions"] == "loaded":
        lines.append("Measured under load: other work kept the CPUs busy. Search again on a quiet machine.")
    if side := document.get("sensitive"):
        where = baseline if side == "default" else "The best"
        lines.append(f"{where[0].upper()}{where[1:]} is sensitive to background load: disturbed more often.")
    lines += under_load(document)
    lines += beside(document)
    if document.get("ended"):
        lines.append(f"It ended with time left: {document['ended']}.")
    trials = document["trials"]
    counted = ", ".join(f"{count} {name}" for name, count in trials.items() if count)
    judged = "relative to your file"
    if document["model"]["source"].startswith("shape:"):
        judged = "not measured, since the weights are random"
    elif "kl_divergence" not in document["best"]["metrics"]:
        judged = "not measured"
    lines.append(
        f"Trials: {counted or 'none'}; {document['dropped_rounds']} rounds dropped;"
        f" {document['elapsed_s']:.0f} s; quality is {judged}."
    )
    profile = document["best"].get("profile_id")
    lines.append(f"Profile {profile} is published. Next:" if profile else "Next:")
    again = " ".join(["cputune search", *document["options"]])
    if status != "confirmed":
        lines.append(f"  {again} --budget 5m      more time for a surer answer")
    lines.append(f"  cputune show {profile or document['study']} --trials")
    if profile and document["best"]["engine"] == EXPORTED:
        lines.append(f"  cputune export {profile}      start llama-server with it")
    elif profile:
        lines.append(f"  cputune serve --profile {profile}      answer requests with it")
    lines.append(f"  {again} --fresh      start anew")
    return lines


def under_load(document: Document) -> Iterator[str]:
    """Both times of the default and the best, where those under load counted."""
    load = document.get("load", {"mode": "quiet"})
    if load["mode"] == "quiet":
        return
    metric = document["objective"]
    share = 100 * load["busy_share"]
    yield f"Made best: {metric}, {100 - share:.0f} % of it quiet and {share:.0f} % beside a busy neighbour."
    for side in ("baseline", "best"):
        quiet, busy = (
            "not measured" if value is None else METRICS[metric].format(value)
            for value in (load[side]["quiet"], load[side]["busy"])
        )
        yield f"  {'default' if side == 'baseline' else side}: {quiet} quiet, {busy} beside the neighbour"


def beside(document: Document) -> Iterator[str]:
    """The everyday interface's number, and how near the best is to what the memory allows."""
    everyday, ceiling = document.get("everyday"), document.get("ceiling")
    if everyday and document["conditions"] == "quiet":
        own = formatted(document["baseline"]["metrics"], "response_ms.p50")
        yield (
            f"The engine's everyday interface, nothing set: {formatted(everyday, 'response_ms.p50')}"
            f" (the default in cputune's own loop: {own})."
        )
    if ceiling:
        yield (
            f"Decode can hardly take less than {ceiling['itl_ms']:.2f} ms a token here"
            f" ({ceiling['fixed_ms']:.2f} ms fixed + {ceiling['bytes_per_token'] / 1e6:.0f} MB"
            f" at {ceiling['bandwidth_gbps']:.1f} GB/s):"
            f" {100 * ceiling['reached']:.0f} % of that speed is reached."
        )


def speedup_line(status: str, speedup: Document, baseline: str = "the default") -> str:
    """The ratio with its interval and confidence."""
    pairs = speedup["pairs"]
    is_own = baseline != "the default"
    if status == "no_gain" and not pairs:
        end = "keep it" if is_own else "it is published as it is"
        return f"{baseline[0].upper()}{baseline[1:]} is the best that was found; {end}."
    interval = f"{speedup['low']:.2f} to {speedup['high']:.2f} at {100 * speedup['confidence']:.1f} %"
    if status == "no_gain":
        end = f"keep {baseline}" if is_own else "the default is published"
        few = f"{pairs} pairs are too few for a claim, {FEWEST_FOR_A_CLAIM} are needed"
        return (
            f"{few if pairs < FEWEST_FOR_A_CLAIM else 'No gain is shown'}: {end}."
            f" What came next reached {speedup['ratio']:.2f}x its speed ({interval}, {pairs} pairs)."
        )
    return f"{speedup['ratio']:.2f}x the speed of {baseline} ({interval}, {pairs} pairs; {status})."


def comparison_report(document: Document) -> None:
    """Both sides of a comparison, which is better, and how sure that is."""
    a, b = document["a"], document["b"]
    heading = f"{document['model']['name']}, {document['workload']['name']}"
    rows = [(f"a: {a['name']}", a), (f"b: {b['name']}", b)]
    show(results_table(heading, rows, a, "as a"), *(Text(line) for line in comparison_conclusion(document)))


def unresolved(document: Document) -> str:
    """What would resolve a comparison: so many more pairs, as far as a comparison runs them."""
    needed, pairs = document["pairs_needed"], document["pairs"]
    if needed is None:
        return "Too few pairs to say how many would resolve it: a longer --budget gives more."
    more = max(needed - pairs, 1)
    about = f"About {more} more pairs would resolve it"
    if pairs + more <= LOOKS[-1]:
        return f"{about}: a longer --budget gives them."
    return f"{about}, and a comparison ends at {LOOKS[-1]}: only a quieter machine may help."


def comparison_conclusion(document: Document) -> list[str]:
    """The verdict with its interval, and what would resolve it."""
    ratio, metric = document["ratio"], document["metric"]
    verdict = {
        "a": f"a ({document['a']['name']}) is better",
        "b": f"b ({document['b']['name']}) is better",
        "no difference": "no difference: they are shown to be within 2 %",
        "not resolved": "not resolved",
    }[document["verdict"]]
    interval = f"{ratio['low']:.3f} to {ratio['high']:.3f} at {100 * ratio['confidence']:.1f} %"
    lines = [
        f"{metric}: a over b is {ratio['estimate']:.3f} ({interval}): {verdict}.",
        f"{document['pairs']} pairs of processes, {document['dropped_rounds']} rounds dropped,"
        f" {document['elapsed_s']:.0f} s.",
    ]
    if document["conditions"] == "loaded":
        lines.append("Measured under load: other work kept the CPUs busy.")
    if document["identical"]:
        lines.append("Both sides are the same configuration: any difference is noise.")
    elif document["verdict"] == "not resolved":
        lines.append(unresolved(document))
    lines.append(f"See it again: cputune show c-{document['comparison']}")
    return lines
