"""What a side of a comparison names, as a configuration that runs on this machine."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from profiles.carry import carried_over
from profiles.nearest import Cpus
from profiles.records import Profile
from profiles.store import Store
from profiles.vocabulary import Config, QualityLevel
from tuner.engines.base import SOURCE
from tuner.errors import EngineUnavailableError, NothingFeasibleError, UsageError
from tuner.events import Event
from tuner.export import Command, parse_command
from tuner.export.reading import is_program
from tuner.from_command import baseline_of, source_of
from tuner.given import check_threads, completed
from tuner.models.source import model_info, resolve
from tuner.search.objectives import objective_of
from tuner.search.space import Space
from tuner.userfiles import Written, looks_like_file, side_given
from tuner.workshop import Workshop

DEFAULT, BEST, COMMAND = "default", "best", "command"


@dataclass(frozen=True)
class Side:
    """What an argument names: a profile, a configuration as written, a llama-server command; none of them
    for default and best."""

    name: str
    profile: Profile | None = None
    written: Written | None = None
    command: Command | None = None

    @property
    def engine(self) -> str | None:
        """The engine that it names."""
        if self.profile is not None:
            return self.profile.config.engine
        return self.written.engine if self.written is not None else None


def read_side(store: Store, text: str) -> Side:
    """What an argument names; UsageError for none of default, best, a profile's id, a file and a command."""
    if text in (DEFAULT, BEST):
        return Side(text)
    if any(map(is_program, text.split())):
        return Side(COMMAND, command=parse_command(text, COMMAND))
    if looks_like_file(text):
        found = side_given(text)
        return Side(text, written=found) if isinstance(found, Written) else Side(text, profile=found)
    if text.startswith("p-"):
        return Side(text, profile=store.profile(text))
    close = difflib.get_close_matches(text, (DEFAULT, BEST), n=1)
    raise UsageError(
        f"can't compare '{text}': allowed are default, best, a profile's id (p-...), a YAML file and a"
        " llama-server command" + (f"; did you mean {close[0]}?" if close else "")
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

    Raises UsageError for what can't run here, EngineUnavailableError where its engine does not.
    """
    running = tuple(part.engine.name for part in space.engines)
    if side.engine is not None and side.engine not in running:
        raise EngineUnavailableError(
            f"{side.name} needs the engine {side.engine}: {', '.join(running)} run this model here; see"
            " cputune engines"
        )
    first = next(iter(shop.available))
    if side.command is not None:
        _check_model(side.command, shop)
        return baseline_of(side.command, shop, side.name)
    if side.written is not None:
        written = side.written
        engine = written.engine or first
        check_threads(written.origin, written.settings, space.part(engine).dimensions, shop)
        given = Config.of(engine, written.variant or SOURCE, written.settings)
        return completed(written.origin, given, shop, space)
    if side.profile is None:
        return space.default(first)
    if side.profile.model_digest != shop.model.digest:
        shop.observer(Event("note", f"{side.name} was found for another model than {shop.model.name}"))
    given = remapped(side.name, side.profile, shop, space)
    if looks_like_file(side.name):
        # One of the store's own may hold what a program chose by itself, which has no bound.
        check_threads(side.name, given.as_dict(), space.part(given.engine).dimensions, shop)
    return completed(side.name, given, shop, space)


def _check_model(command: Command, shop: Workshop) -> None:
    """UsageError for a command that runs other weights than those that are compared."""
    cache = shop.home.models
    own = model_info(resolve(source_of(command), cache=cache), cache=cache)
    if own.digest != shop.model.digest:
        raise UsageError(
            f"{COMMAND}: {command.model} is another model than {shop.model.name}: a comparison is of one"
            " model; name a variant of it in a YAML file"
        )


def remapped(origin: str, profile: Profile, shop: Workshop, space: Space) -> Config:
    """The profile's configuration; one from another machine is brought to this one by `profiles.carry`.

    A note says what was changed.
    """
    if profile.fingerprint == shop.machine.fingerprint:
        return profile.config
    there = _cpus_of(profile)
    described = space.part(profile.config.engine).dimensions
    config, changes = carried_over(profile.config, described, there, Cpus.of(shop.machine))
    if changes:
        cpus = f" with {there.usable} CPUs" if there else ""
        shop.observer(Event("note", f"{origin} is from another machine{cpus}: {', '.join(changes)}"))
    return config


def _cpus_of(profile: Profile) -> Cpus | None:
    document = profile.facts.get("document")
    machine = document.get("machine") if isinstance(document, dict) else None
    cpus = machine.get("effective_cpus") if isinstance(machine, dict) else None
    return Cpus(cpus) if isinstance(cpus, int) and cpus > 0 else None
