"""Flat metrics of what was measured, from its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiles.records import Conditions
from profiles.vocabulary import Config
from tuner.measurement.measurement import Measurement
from tuner.measurement.metrics import summarise
from tuner.search.limits import Metrics
from tuner.workshop import Workshop


def metrics_of(shop: Workshop, config: Config, conditions: Conditions, known: Metrics) -> dict[str, float]:
    """From the rounds that ran the whole workload where there are any, else from the search's short ones.

    `known` gives what no round tells: memory, load. Nothing where no clean round is stored.
    """
    rounds = [r for r in shop.store.rounds(shop.identify(config, conditions).key) if r.dropped is None]
    full = [r for r in rounds if r.kind == "full"]
    if not rounds:
        return {}
    once = {name: value for name, value in known.items() if "." not in name}
    return once | summary(shop, config, full or rounds, None)


def trial_metrics(shop: Workshop, config: Config, measured: Measurement) -> dict[str, float]:
    """The flat metrics of a trial."""
    return summary(shop, config, measured.rounds, measured)


def summary(
    shop: Workshop, config: Config, rounds: Sequence[Any], measured: Measurement | None
) -> dict[str, float]:
    """Flat metrics of some rounds of a configuration."""
    return summarise(
        rounds,
        shop.workload,
        effective_cpus=shop.machine.effective.cpu_count,
        variant_bytes=shop.variant(config.engine, config.variant).file_bytes,
        load_ms=measured.load_ms if measured else None,
        first_request_ms=measured.first_request_ms if measured else None,
        memory=measured.memory if measured else None,
    )
