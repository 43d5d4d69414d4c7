"""Every engine and variant side by side in one run: speed of whole requests, memory, and quality."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from probes.machine import probe
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, Config, Setting
from tuner.errors import ModelFileError, WorkerError
from tuner.events import ignore
from tuner.home import Home
from tuner.measured import trial_metrics
from tuner.measurement.lock import measuring_lock
from tuner.request import SearchRequest, workload_named
from tuner.search.space import Space
from tuner.setup import build_space, open_workshop
from tuner.workshop import Workshop

ROUNDS = 3
REFERENCE = "transformers"
ONCE: Mapping[str, tuple[Mapping[str, Setting], ...]] = {
    REFERENCE: ({"use_cache": False}, {"beams": 4}),
}
"""What is measured once only, on an engine's first variant, to show what it costs."""

SHOWN = ("ttft_ms.p50", "tpot_ms.p50", "response_ms.p50", "peak_rss_mib", "load_ms")


def engines(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """One row a configuration of `--models`, and a table of all of them for docs/engines.md.

    Each engine runs its first rule of thumb; the ratio is to Transformers' float32 in the same run.
    """
    rows: list[dict[str, Any]] = []
    for model in options.models.split(",") if options.models else [None]:
        request = SearchRequest(
            model,
            workload_named(options.workloads.split(",")[0]),
            QUALITY_LEVELS["any"],
            engines=tuple(options.engines.split(",")) if options.engines else None,
        )
        home = Home(folder / "home")
        with (
            Store.open(home.database) as store,
            closing(open_workshop(request, probe(), store, home, ignore)) as shop,
            measuring_lock(),
        ):
            rows += _of_model(shop, build_space(request, shop), options)
    return [*rows, {"what": "engines", "markdown": _table(rows)}]


def _of_model(shop: Workshop, space: Space, options: Namespace) -> list[dict[str, Any]]:
    rows = []
    with shop.bench(seed=options.seed) as bench:
        for config, rounds in _configurations(space):
            row: dict[str, Any] = {
                "what": f"{shop.model.name} {config.engine} {config.variant}{_odd(config, space)}",
                "command": "python -m tests.benchmarks.run engines",
            }
            try:
                measured = bench.measure(config, rounds=rounds, kind="full")
                metrics = trial_metrics(shop, config, measured)
                row |= {name: metrics[name] for name in SHOWN if name in metrics}
                row["bits"] = shop.variant(config.engine, config.variant).bits_per_weight
                quality = shop.quality(space.quality_key(config))
                row |= {"kl": quality.kl_divergence, "top1": quality.top1_agreement}
            except (WorkerError, ModelFileError) as failure:
                row["reason"] = str(failure)
            rows.append(row)
    return rows


def _configurations(space: Space) -> Iterator[tuple[Config, int]]:
    """Every variant under its engine's first rule of thumb with its number of rounds, then what is odd."""
    for part in space.engines:
        start = next(iter(space.starts(part.engine.name)), {})
        for variant in part.variants:
            config = space.make(part.engine.name, variant, start)
            if config is not None:
                yield config, ROUNDS
        for settings in ONCE.get(part.engine.name, ()):
            config = space.make(part.engine.name, part.variants[0], {**start, **settings})
            if config is not None:
                yield config, 1


def _odd(config: Config, space: Space) -> str:
    """The settings that are no part of what is searched."""
    by_name = space.part(config.engine).by_name
    return "".join(f" {name}={value}" for name, value in config.settings if value not in by_name[name].values)


def _table(rows: list[dict[str, Any]]) -> str:
    titles = (
        "engine and variant",
        "TTFT ms",
        "ms/token",
        "response ms",
        "MiB",
        "load ms",
        "KL",
        "top-1",
        "x",
    )
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    reference = next((r.get("response_ms.p50") for r in rows if f" {REFERENCE} " in r["what"]), None)
    for row in rows:
        if "reason" in row:
            lines.append(f"| {row['what']} | {row['reason']} |" + " |" * (len(titles) - 2))
            continue
        own = row.get("response_ms.p50")
        numbers = [
            *(f"{row[name]:.4g}" if name in row else "-" for name in SHOWN),
            *(f"{row[name]:.4f}" if name in row else "-" for name in ("kl", "top1")),
            f"{reference / own:.2f}" if reference and own else "-",
        ]
        lines.append(f"| {row['what']} | " + " | ".join(numbers) + " |")
    return "\n".join(lines)
