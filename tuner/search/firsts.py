"""What a search looks at first, and what stands in for a default that does not run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from profiles.vocabulary import Config, Role, Setting
from tuner.search.space import Space

SUSPECTS = (Role.WEIGHTS, Role.KV, Role.BATCH, Role.THREADS, Role.PLACEMENT)
"""Where to look for what keeps a default from running."""
FIRST_SUSPECTS = 4


def first_looks(space: Space, *, loaded: bool) -> Iterator[Config]:
    """Every variant of the first engine by its first rule of thumb, then every other engine as it comes and
    its variants likewise.

    The first engine is made for such a model; others may need a conversion, which takes longer than all of
    its looks. They take turns, so that all have been seen where time ends early. On a loaded machine a CPU is
    left to others.
    """
    looks: list[list[Config | None]] = []
    for part in space.engines:
        name = part.engine.name
        rule = next(iter(space.starts(name)), None)
        if rule is not None:
            settings = {**rule, **(sparing(space, name) if loaded else {})}
            made = [space.make(name, variant, settings) for variant in part.variants]
            looks.append(made if part is space.engines[0] else [space.default(name), *made])
    first, *others = looks or [[]]
    turns = (config for turn in zip_longest(*others) for config in turn)
    yield from (config for config in (*first, *turns) if config is not None)


def stand_ins(space: Space, config: Config) -> Iterator[Config]:
    """One that leaves a CPU to others; then those that differ in one setting, first what chooses which code
    runs; or in the variant.

    Other variants come after a few settings: the file itself may be what the engine dies of.
    """
    part = space.part(config.engine)
    settings = [
        (config.variant, {**config.as_dict(), dimension.name: value})
        for dimension in sorted(part.dimensions, key=lambda d: SUSPECTS.index(d.role))
        for value in dimension.values
    ]
    fewer = (config.variant, {**config.as_dict(), **sparing(space, config.engine)})
    variants = [(variant, config.as_dict()) for variant in part.variants]
    for variant, changed in (fewer, *settings[:FIRST_SUSPECTS], *variants, *settings[FIRST_SUSPECTS:]):
        made = space.make(config.engine, variant, changed)
        if made is not None and made != config:
            yield made


def sparing(space: Space, engine: str) -> dict[str, Setting]:
    """Threads that leave a CPU to others: beside a busy neighbour all of them hold each other up."""
    cpus = space.machine.effective.cpu_count
    return {
        d.name: max((v for v in d.values if isinstance(v, int) and v < cpus), default=d.values[0])
        for d in space.part(engine).dimensions
        if d.role is Role.THREADS
    }
