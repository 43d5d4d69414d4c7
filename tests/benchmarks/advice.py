"""Checks popular advice by `cputune compare` and writes what was measured into docs/advice.md.

`python -m tests.benchmarks.advice [--row NAME] [--seconds 60] [--write docs/advice.md]`
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from probes.errors import CputuneError
from probes.machine import Machine, probe
from tests.benchmarks.advice_rows import ROWS, Document, Row, finding
from tests.benchmarks.advice_served import Cells
from tests.benchmarks.advice_sides import THREADS, NothingToCompareError, Side, Sides
from tests.benchmarks.commands import cputune
from tuner.models.source import DEMO

SECONDS = 60
"""Of one comparison: six pairs and more of the demo model on two cores."""
SLOW = 3
"""So many times as long where PyTorch or a conversion's result is started for each pair."""
COLUMNS = ("advice", "command", "measured", "finding", "when it holds")
UNMEASURED = ("not measured yet", "-")
_BLOCK = re.compile(r"(<!-- measured: advice -->\n).*?(<!-- end -->)", re.DOTALL)
_UNITS = {"_ms": "ms", "_mib": "MiB", "_tps": "tokens/s"}


class AdviceError(Exception):
    """What was asked can't be done; one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the rows that are asked and print the table; 1 where it can't be written."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.advice", description=__doc__)
    parser.add_argument(
        "--row", choices=[row.name for row in ROWS], help="[default: all that can be measured]"
    )
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each comparison")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also put the cells into this page")
    options = parser.parse_args(argv)
    machine = probe()
    rows = [row for row in ROWS if options.row in (None, row.name)]
    with tempfile.TemporaryDirectory(prefix="cputune-advice-") as folder:
        place = Path(folder)
        cells = measured(rows, machine, Comparisons(place, options.seconds).of, partial(on_service, place))
    head = heading(machine, options.seconds)
    try:
        if options.write is not None:
            page = options.write.read_text(encoding="utf-8")
            options.write.write_text(rewritten(page, head, cells), encoding="utf-8")
    except (OSError, AdviceError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        sys.stdout.write(table(head, rows, cells))
    return 0


def advice(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """All rows, as a benchmark."""
    machine = probe()
    cells = measured(ROWS, machine, Comparisons(folder, options.budget).of, partial(on_service, folder))
    text = table(heading(machine, options.budget), ROWS, cells)
    return [{"what": "popular advice", "command": "make bench ARGS=advice", "markdown": text}]


# --- measuring -----------------------------------------------------------------------------------


@dataclass
class Comparisons:
    """Runs `cputune compare` on pairs of sides; the same pair once."""

    folder: Path
    seconds: int
    done: dict[str, Document] = field(default_factory=dict)

    def of(self, row: Row, sides: Sides) -> Document:
        """The document of a comparison; raises AdviceError with the program's own line where it fails."""
        texts = [yaml.safe_dump(side.document(), sort_keys=True) for side in sides]
        key = "---\n".join(texts)
        if key not in self.done:
            paths = [self.folder / f"{letter}.yaml" for letter in "ab"]
            for path, text in zip(paths, texts, strict=True):
                path.write_text(text, encoding="utf-8")
            options = ["--model", DEMO, "--budget", f"{self.seconds * (SLOW if row.slow else 1)}s"]
            if row.lengths is not None:
                lengths = dict(zip(("prompt_tokens", "output_tokens"), row.lengths, strict=True))
                workload = self.folder / f"{row.name}-lengths.yaml"
                workload.write_text(yaml.safe_dump(lengths), encoding="utf-8")
                options += ["--workload", str(workload)]
            ran = cputune(self.folder, "compare", *map(str, paths), *options, "--json")
            if ran.code != 0:
                said = ran.stderr.replace(f"{self.folder}/", "").strip().splitlines()
                raise AdviceError(said[-1] if said else f"exit code {ran.code}")
            self.done[key] = ran.document
        return self.done[key]


def measured(
    rows: Sequence[Row],
    machine: Machine,
    compare: Callable[[Row, Sides], Document],
    served: Callable[[Callable[[Path], Cells]], Cells] | None = None,
) -> dict[str, Cells]:
    """The cells of those rows that can be measured; those on serving where `served` runs them."""
    found: dict[str, Cells] = {}
    for row in rows:
        if row.served is not None and served is not None:
            sys.stderr.write(f"{row.name}\n")
            found[row.name] = served(row.served)
        if row.sides is None:
            continue
        sys.stderr.write(f"{row.name}\n")
        try:
            sides = row.sides(machine)
            document = compare(row, sides)
            found[row.name] = figures(row, sides, document), (row.says or finding)(document)
        except NothingToCompareError as reason:
            found[row.name] = str(reason), "nothing to choose here"
        except AdviceError as error:
            found[row.name] = f"failed: {error}", "-"
    return found


def on_service(folder: Path, measure: Callable[[Path], Cells]) -> Cells:
    """The cells of a row on serving; why there are none where the service does not run."""
    try:
        return measure(folder)
    except (CputuneError, RuntimeError, OSError) as error:
        return f"failed: {' '.join(str(error).split())[:150]}", "-"


def figures(row: Row, sides: Sides, document: Document) -> str:
    """What was measured: the advice's speed over its opposite's, and the metrics that it is about."""
    ratio = document["ratio"]
    a, b = (difference(side, other) for side, other in (sides, sides[::-1]))
    interval = f"{ratio['low']:.2f} to {ratio['high']:.2f} at {100 * ratio['confidence']:.3g} %"
    parts = [f"`{b}` {ratio['estimate']:.2f} times as fast as `{a}` ({interval}, {document['pairs']} pairs)"]
    for name in ("response_ms.p50", *row.shown):
        values = [document[side]["metrics"].get(name) for side in "ab"]
        if None not in values:
            parts.append(f"{name.removesuffix('.p50')} {shown(values[0])} -> {shown(values[1])}{unit(name)}")
    if row.lengths is not None:
        parts.append("{} prompt and {} output tokens".format(*row.lengths))
    if document["conditions"] != "quiet":
        parts.append("measured under load")
    return "; ".join(parts)


def difference(side: Side, other: Side) -> str:
    """What one side has that the other has not."""
    own = side.document()["settings"], other.document()["settings"]
    assert isinstance(own[0], dict)
    assert isinstance(own[1], dict)
    changed = [f"{name}={value}" for name, value in own[0].items() if own[1].get(name) != value]
    threads = THREADS[side.engine]
    if side.engine != other.engine:
        changed = [text for text in changed if text.partition("=")[0] not in threads]
    names = [side.engine] if side.engine != other.engine else []
    names += [side.variant] if side.variant != other.variant else []
    return " ".join(names + changed) or "default"


def shown(value: float) -> str:
    """Three digits, never as a power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def unit(metric: str) -> str:
    """A metric's unit by its name."""
    return next((f" {unit}" for end, unit in _UNITS.items() if metric.removesuffix(".p50").endswith(end)), "")


# --- the page ------------------------------------------------------------------------------------


def heading(machine: Machine, seconds: int) -> str:
    """Where and how it was measured."""
    cpus = machine.effective.cpu_count
    return (
        f"Measured on: {machine.model_name}, {cpus} CPUs; the demo model, chat; {seconds} s a comparison, of"
        f" other engines than llama.cpp {SLOW * seconds} s."
    )


def line(row: Row, cells: Cells) -> str:
    """One row of the table."""
    can_be = row.sides is not None or row.served is not None
    command = f"`python -m tests.benchmarks.advice --row {row.name}`" if can_be else "-"
    texts = (row.advice, command, *cells, row.holds)
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def table(head: str, rows: Sequence[Row], cells: Mapping[str, Cells]) -> str:
    """The table in Markdown."""
    lines = [*([head, ""] if head else []), "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        lines.append(line(row, cells.get(row.name, (row.follows, "-") if row.follows else UNMEASURED)))
    return "\n".join(lines) + "\n"


def kept(page: str) -> tuple[str | None, dict[str, Cells]]:
    """The heading of a page's table, and the cells of its measured rows."""
    block = _BLOCK.search(page)
    if block is None:
        raise AdviceError("the page has no lines <!-- measured: advice --> and <!-- end --> to write between")
    found: dict[str, Cells] = {}
    for text in block.group().splitlines():
        parts = [part.strip() for part in re.split(r"(?<!\\)\|", text)[1:-1]]
        name = re.search(r"--row ([\w.-]+)", parts[1]) if len(parts) == len(COLUMNS) else None
        if name is not None:
            found[name.group(1)] = parts[2].replace("\\|", "|"), parts[3].replace("\\|", "|")
    head = re.search(r"^Measured on: .*$", block.group(), re.MULTILINE)
    return head.group() if head else None, {row: cells for row, cells in found.items() if cells != UNMEASURED}


def rewritten(page: str, head: str, cells: Mapping[str, Cells]) -> str:
    """The page with these cells in its table; the other rows keep theirs.

    Raises AdviceError where those were measured elsewhere or otherwise: one table has one heading.
    """
    before, earlier = kept(page)
    rest = {name: value for name, value in earlier.items() if name not in cells}
    if rest and before != head:
        raise AdviceError(
            f"the table has rows of another setting ({before}): measure all rows, without --row"
        )
    text = table(head, ROWS, {**rest, **cells})
    return _BLOCK.sub(lambda block: block[1] + text + block[2], page)


if __name__ == "__main__":
    sys.exit(main())
