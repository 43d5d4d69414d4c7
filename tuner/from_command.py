"""A user's own command as a search's baseline: what it means here, and how it has to change."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from probes.machine import Machine
from profiles.vocabulary import Config, Role, Setting, Workload
from tuner.engines import NEVER_BY_DEFAULT
from tuner.engines.base import SOURCE, Dimension
from tuner.errors import EngineUnavailableError
from tuner.export import Command, Launch, edited
from tuner.export.launch import LLAMA_CPP
from tuner.export.server import unsaid
from tuner.given import check_threads, completed
from tuner.measurement import placement
from tuner.search.space import EngineSpace, Space
from tuner.workshop import Workshop


def source_of(command: Command) -> str:
    """The command's model as a source: what -m names is a file, whatever it looks like."""
    file = command.last("-m")
    if file is None:
        return command.model
    path = os.path.expanduser(file)
    return path if path.startswith(("/", ".")) else f"./{path}"


FROM = "--from"
"""How errors name the command of a search."""


def engine_of(command: Command, shop: Workshop, origin: str = FROM) -> str:
    """The engine that the command's program is; a simulated one stands in for it where it is named.

    Raises EngineUnavailableError, which begins with `origin`, where neither is there.
    """
    for name in (LLAMA_CPP, *sorted(NEVER_BY_DEFAULT)):
        if name in shop.available:
            return name
    raise EngineUnavailableError(
        f"{origin}: {command.program} runs llama_cpp, which is not among the engines that are asked for"
        f" ({', '.join(shop.available)}): see cputune engines, and name it with --engines"
    )


def baseline_of(command: Command, shop: Workshop, origin: str = FROM) -> Config:
    """The configuration that the command runs with on this machine, more threads than CPUs included.

    Raises UsageError, which begins with `origin`, for a value that can't run or be measured, and as
    `engine_of`.
    """
    engine = shop.engine(engine_of(command, shop, origin))
    dimensions = (
        *engine.dimensions(shop.machine, shop.model, shop.workload),
        *placement.dimensions(engine, shop.machine),
    )
    space = Space(shop.machine, shop.model, shop.workload, (EngineSpace(engine, (SOURCE,), dimensions),))
    check_threads(origin, command.settings, dimensions, shop)
    every = {**command.settings_on(shop.machine), **_slots(command, shop.workload)}
    known = space.part(engine.name).by_name
    settings = {name: value for name, value in every.items() if name in known}
    return completed(origin, Config.of(engine.name, SOURCE, settings), shop, space)


def _slots(command: Command, workload: Workload) -> dict[str, Setting]:
    count = min(command.streams or workload.streams, workload.streams)
    return {"n_seq_max": count, "active_streams": count}


def around(
    dimensions: Iterable[Dimension], baseline: Config, *, answers_unchanged: bool
) -> tuple[Dimension, ...]:
    """The dimensions as a search from a command has them.

    What is searched at its default only (mapping, locking) is the user's choice and stays as the command has
    it. So does all that changes answers, where they may not change.
    """
    return tuple(
        _kept(d, baseline, answers_unchanged) if d.role is not Role.THREADS else d for d in dimensions
    )


def _kept(dimension: Dimension, baseline: Config, answers_unchanged: bool) -> Dimension:
    value = baseline.get(dimension.name)
    if value is None:
        return dimension
    if dimension.values == (dimension.default,):
        return replace(dimension, values=(value,), default=value)
    if answers_unchanged and dimension.affects_quality:
        return replace(dimension, default=value)
    return dimension


def notes(command: Command, workload: Workload, machine: Machine) -> tuple[str, ...]:
    """What a user has to know of how the command is measured."""
    found = []
    if command.not_expressed:
        names = ", ".join(command.not_expressed)
        found.append(f"{names}: the baseline is measured without, cputune has no setting for it")
    most = machine.effective.cpu_count
    settings = command.settings_on(machine)
    counts = dict.fromkeys(settings[name] for name in ("n_threads", "n_threads_batch"))
    for count in counts:
        if isinstance(count, int) and count > most:
            found.append(f"{count} threads are more than the {most} CPUs here: measured as they are")
    if command.streams is not None and (command.streams, workload.streams) != (1, 1):
        found.append(f"-np {command.streams}: measured with {_requests(workload.streams)} at a time")
    needed = workload.context_tokens * max(command.streams or 1, workload.streams)
    context = command.context_tokens
    if context is not None and context < needed:
        found.append(f"-c {context}: too little for the workload, measured with {needed}")
    elif context is not None and context > needed:
        found.append(f"-c {context} is kept; both sides are measured with {needed}, all that they use of it")
    return tuple(found)


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"


def about(command: Command, workload: Workload, machine: Machine) -> dict[str, Any]:
    """The `from` of a search's document; it holds no secrets, for it is stored."""
    return {
        "command": command.text,
        "ignored": list(command.ignored),
        "not_expressed": list(command.not_expressed),
        "notes": list(notes(command, workload, machine)),
    }


def with_flags(
    document: dict[str, Any], command: Command | None, shop: Workshop, baseline: Config | None
) -> dict[str, Any]:
    """The document of a search with `flags`: what to change in the command, and the whole new command.

    None where there is no command, where nothing is feasible, and where the best runs on another engine.
    """
    best: Mapping[str, Any] | None = document["best"]
    if command is None or baseline is None or best is None or best["engine"] != baseline.engine:
        return {**document, "flags": None}
    config = Config.of(best["engine"], best["variant"], best["config"])
    before, after = (
        Launch.of(one, str(shop.path(one).absolute()), shop.workload, shop.machine)
        for one in (baseline, config)
    )
    new = edited(command, before, after)
    flags = {
        "add": [{"flag": c.flag, "value": c.after} for c in new.of(before=False, after=True)],
        "change": [asdict(c) for c in new.of(before=True, after=True)],
        "remove": [{"flag": c.flag, "value": c.before} for c in new.of(before=True, after=False)],
        "command": new.text,
        "notes": list(unsaid(after)) if new.changes else [],
    }
    return {**document, "flags": flags}
