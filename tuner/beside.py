"""Numbers that stand beside an answer: the engine's everyday interface, and the ceiling of decode."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from probes.bandwidth import measure_reads
from profiles.records import Conditions
from profiles.vocabulary import Config
from tuner.engines import NEVER_BY_DEFAULT
from tuner.engines.base import Phase
from tuner.errors import WorkerError
from tuner.events import Event
from tuner.measurement.everyday import measure_everyday
from tuner.search.budget import Budget
from tuner.search.ceiling import Decode, ceiling
from tuner.search.ledger import Ledger
from tuner.workshop import Workshop

FEWEST_VARIANTS = 3
"""Fewer sizes can't tell a fixed cost from bandwidth."""
EVERYDAY_GRACE_S = 6.0
"""What the everyday interface may take beyond the budget; it is measured once, after everything else."""


def everyday(
    shop: Workshop, engine: str, seed: int, conditions: Conditions, budget: Budget
) -> Mapping[str, float] | None:
    """What people see who use the engine without cputune, as flat metrics; None where there is no such
    number or it could not be measured."""
    try:
        return measure_everyday(
            shop.engine(engine),
            shop.machine,
            shop.model,
            shop.workload,
            shop.variant(engine, shop.engine(engine).recipes(shop.model)[0].label).path,
            seed=seed,
            log_directory=shop.home.logs,
            conditions=conditions,
            remaining_s=lambda: budget.left_s + EVERYDAY_GRACE_S,
        )
    except WorkerError as failure:
        shop.observer(Event("note", f"{engine}'s everyday interface was not measured: {failure.reason}"))
        return None


def decode_ceiling(
    shop: Workshop, ledger: Ledger, best: Config, conditions: Conditions
) -> dict[str, float] | None:
    """The two-term ceiling of a single stream's decode, from every measured variant of the best's engine.

    Bandwidth is measured now, over a buffer of the best's own size on as many threads as it decodes with.
    """
    values = ledger.values_ms(best, Phase.DECODE)
    made_up = best.engine in NEVER_BY_DEFAULT
    if made_up or conditions != "quiet" or shop.workload.streams > 1 or not values:
        return None
    fastest: dict[str, float] = {}
    for config in ledger.configs:
        seen = ledger.values_ms(config, Phase.DECODE)
        if config.engine == best.engine and seen:
            fastest[config.variant] = min(median(seen), fastest.get(config.variant, float("inf")))
    sizes = _bytes_a_token(shop, best.engine)
    measured = [Decode(sizes[label], itl_ms) for label, itl_ms in fastest.items() if label in sizes]
    if len(measured) < FEWEST_VARIANTS or best.variant not in sizes:
        return None
    own = Decode(sizes[best.variant], median(values))
    threads = best.get("n_threads")
    counts = sorted({threads if isinstance(threads, int) else 1, shop.machine.effective.cpu_count})
    reads = measure_reads(own.bytes_per_token, counts)
    return ceiling(own, measured, reads.best_gbps or 0.0).to_json()


def _bytes_a_token(shop: Workshop, engine: str) -> dict[str, int]:
    """What a token reads of each variant that was ever made: all tensors. A table of embeddings that is not
    the output layer too is counted though only a row of it is read.

    From the store: a variant of an earlier run may have left the cache, and is not made anew for this.
    """
    made = shop.store.variants(shop.model.digest)
    return {one.label: sum(one.tensor_mix.values()) for one in made if one.engine == engine}
