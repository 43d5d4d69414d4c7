"""What a side of a comparison names, as a configuration that runs on this machine."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from profiles.records import Profile
from profiles.store import Store
from profiles.vocabulary import Config, QualityLevel, Setting
from tuner.engines.base import SOURCE, Role
from tuner.errors import NothingFeasibleError, UsageError
from tuner.events import Event
from tuner.measurement import placement
from tuner.narrowing import check_names, memory_problem, problem_of
from tuner.search.narrow import fitted
from tuner.search.objectives import objective_of
from tuner.search.space import Space
from tuner.userfiles import Written, looks_like_file, side_given
from tuner.workshop import Workshop

DEFAULT, BEST = "default", "best"


@dataclass(frozen=True)
class Side:
    """What an argument names: a profile, a configuration as written; neither for default and best."""

    name: str
    profile: Profile | None = None
    written: Written | None = None

    @property
    def engine(self) -> str | None:
        """The engine that it names."""
        if self.profile is not None:
            return self.profile.config.engine
        return self.written.engine if self.written is not None else None


def read_side(store: Store, text: str) -> Side:
    """What an argument names; UsageError for none of default, best, a profile's id and a file."""
    if text in (DEFAULT, BEST):
        return Side(text)
    if looks_like_file(text):
        found = side_given(text)
        return Side(text, written=found) if isinstance(found, Written) else Side(text, profile=found)
    if text.startswith("p-"):
        return Side(text, profile=store.profile(text))
    close = difflib.get_close_matches(text, (DEFAULT, BEST), n=1)
    raise UsageError(
        f"can't compare '{text}': allowed are default, best, a profile's id (p-...) and a YAML file"
        + (f"; did you mean {close[0]}?" if close else "")
    )


def known(side: Side, quality: QualityLevel, shop: Workshop) -> Side:
    """The side, with what is published for this question where it is best.

    Raises NothingFeasibleError where nothing is.
    """
    if side.name != BEST:
        return side
    found = shop.store.best_profile(
        shop.machine.fingerprint,
        shop.model.digest,
        shop.workload,
        (objective_of(shop.workload),),
        quality.name,
        engines=tuple(shop.available),
    )
    if found is None:
        raise NothingFeasibleError(
            f"no best is known of {shop.model.name} for {shop.workload.name} at {quality.name} on"
            " this machine: run cputune search first"
        )
    return replace(side, profile=found)


def configuration(side: Side, shop: Workshop, space: Space) -> Config:
    """The configuration of a side on this machine; it may use more threads than there are CPUs.

    Raises UsageError for what can't run here.
    """
    first = next(iter(shop.available))
    if side.written is not None:
        written = side.written
        engine = written.engine or first
        given = Config.of(engine, written.variant or SOURCE, written.settings)
        return completed(written.origin, given, shop, space)
    if side.profile is None:
        return space.default(first)
    if side.profile.model_digest != shop.model.digest:
        shop.observer(Event("note", f"{side.name} was found for another model than {shop.model.name}"))
    return completed(side.name, remapped(side.name, side.profile, shop, space), shop, space)


def remapped(origin: str, profile: Profile, shop: Workshop, space: Space) -> Config:
    """The profile's configuration; one from another machine with its threads and placement brought to this.

    Thread counts keep their share of the CPUs where the other machine's number is known, else they are
    only cut to the CPUs here. A note says what was changed.
    """
    config = profile.config
    if profile.fingerprint == shop.machine.fingerprint:
        return config
    here, there = shop.machine.effective.cpu_count, _cpus_of(profile)
    described = space.part(config.engine).by_name
    changes: dict[str, Setting] = {}
    for name, value in config.settings:
        dimension = described.get(name)
        if dimension is not None and dimension.role is Role.THREADS and isinstance(value, int):
            share = round(value * here / there) if there else value
            changes[name] = min(max(share, 1), here)
        elif dimension is not None and name in placement.NAMES and value not in dimension.values:
            changes[name] = dimension.default
    unplaced = [name for name, _ in config.settings if name in placement.NAMES and name not in described]
    changed = [
        f"{name} {config.get(name)} -> {value}"
        for name, value in changes.items()
        if config.get(name) != value
    ]
    changed += [f"{name} {config.get(name)} is dropped" for name in unplaced]
    if changed:
        cpus = f" with {there} CPUs" if there else ""
        shop.observer(Event("note", f"{origin} is from another machine{cpus}: {', '.join(changed)}"))
    return config.without(unplaced).with_settings(**changes)


def _cpus_of(profile: Profile) -> int | None:
    document = profile.facts.get("document")
    machine = document.get("machine") if isinstance(document, dict) else None
    cpus = machine.get("effective_cpus") if isinstance(machine, dict) else None
    return cpus if isinstance(cpus, int) and cpus > 0 else None


def completed(origin: str, given: Config, shop: Workshop, space: Space) -> Config:
    """The canonical configuration with the default's values for what is not given.

    Raises UsageError with the nearest name for an unknown variant or setting, and with the engine's reason
    for a value that can't run. Thread counts above the CPUs pass: comparing them is how a user sees why not.
    """
    part = space.part(given.engine)
    recipes = {recipe.label: recipe for recipe in part.engine.recipes(shop.model)}
    check_names("variant", (given.variant,), tuple(recipes))
    check_names("setting", (name for name, _ in given.settings), tuple(part.by_name))
    settings = space.default(given.engine).as_dict()
    settings |= {name: fitted(part.by_name[name], value) for name, value in given.settings}
    config = Config.of(given.engine, given.variant, settings)
    most = shop.machine.effective.cpu_count
    within = {
        d.name: most
        for d in part.dimensions
        if d.role is Role.THREADS and isinstance(value := config.get(d.name), int) and value > most
    }
    problem = problem_of(shop, part.engine, config.with_settings(**within))
    problem = problem or memory_problem(shop, recipes[given.variant])
    if problem is not None:
        raise UsageError(f"{origin}: {problem}")
    return space.canonical(config)
