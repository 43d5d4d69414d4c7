"""What comes before a search: the model, the engines that run here, the space, the study."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from probes.machine import Machine, probe
from profiles.records import StudyRecord, StudySpec
from profiles.store import Store, owner_token
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, ModelInfo
from tuner import engines as registry
from tuner import environment, from_command
from tuner.engines.base import Availability, Dimension, Engine
from tuner.errors import EngineUnavailableError, ModelFileError, UsageError
from tuner.events import Event, Observer
from tuner.home import Home
from tuner.measurement import placement
from tuner.measurement.availability import availabilities
from tuner.models.source import DEMO, Source, model_info, resolve
from tuner.models.variants import VariantCache
from tuner.narrowing import check_names, check_variants, searched_dimensions, searched_variants
from tuner.opening import store_to_write
from tuner.request import SearchRequest, near
from tuner.search.narrow import restrict
from tuner.search.proposer import SAMPLER_NAME
from tuner.search.space import EngineSpace, Space
from tuner.workshop import Workshop


def open_workshop(
    request: SearchRequest, machine: Machine, store: Store, home: Home, observer: Observer
) -> Workshop:
    """The model, the machine and the engines of a request.

    Raises ModelFileError, EngineUnavailableError or UsageError.
    """
    source, model = model_asked(store, home, request)
    store.save_machine(machine, socket.gethostname())
    running = running_engines(request.engines, machine, model, observer)
    available = equipped_engines(running, model, home, observer)
    return Workshop(machine, source, model, request.workload, home, store, available, observer)


def model_asked(store: Store, home: Home, request: SearchRequest) -> tuple[Source, ModelInfo]:
    """The model of a request; that of its command, where it has one, which --model may only name again."""
    if request.command is None:
        return choose_model(store, home, request.model)
    found = add_model(store, home, from_command.source_of(request.command), None)
    if request.model is not None and choose_model(store, home, request.model)[1].digest != found[1].digest:
        raise UsageError(
            f"--model {request.model} is another file than the command's {request.command.model}: leave"
            " --model out, or name the same file"
        )
    return found


def choose_model(store: Store, home: Home, wanted: str | None) -> tuple[Source, ModelInfo]:
    """A registered model by name, a source by its path; without a name the only registered one, or the
    demo model where none is."""
    registered = {record.name: record for record in store.models()}
    if wanted is None:
        own = [record for record in registered.values() if record.source != DEMO]
        if len(own) > 1:
            raise UsageError(
                f"{len(own)} models are registered ({', '.join(sorted(r.name for r in own))}):"
                " name one with --model"
            )
        return add_model(store, home, own[0].source if own else DEMO, own[0].name if own else None)
    record = registered.get(wanted)
    if record is None and not _may_be_source(wanted):
        listed = f"registered are {', '.join(sorted(registered))}" if registered else "none is registered yet"
        raise ModelFileError(
            f"no model '{wanted}' is registered and no such file exists: {listed}{near(wanted, registered)};"
            " add one with cputune models add FILE.gguf"
        )
    return add_model(store, home, record.source if record else wanted, record.name if record else None)


def _may_be_source(wanted: str) -> bool:
    """Whether a text is written like a source; a plain word that is no file is a name."""
    return any(mark in wanted for mark in ("/", ":", ".gguf")) or os.path.exists(wanted)


def add_model(
    store: Store, home: Home, source: str, name: str | None, *, refresh: bool = False
) -> tuple[Source, ModelInfo]:
    """Check a source and register it; raises ModelFileError for one that can't be used.

    Weights have one name: what is registered already keeps its own, whatever file of them is given. With
    `refresh` the given source takes the place of the registered one, and a hub is asked for a newer file;
    another `name` than theirs raises UsageError then.
    """
    found = resolve(source, cache=home.models, refresh=refresh)
    model = model_info(found, cache=home.models)
    known = next((record for record in store.models() if record.info.digest == model.digest), None)
    if known is not None and refresh and name not in (None, known.name):
        raise UsageError(
            f"{source} holds the weights that are registered as '{known.name}' already: use that name, or"
            f" first cputune models remove {known.name}"
        )
    registered = known.name if known else name or found.name
    model = replace(model, name=registered)
    store.save_model(model, found.spec if known is None or refresh else known.source, registered)
    return found, model


def running_engines(
    asked: tuple[str, ...] | None, machine: Machine, model: ModelInfo, observer: Observer
) -> Mapping[str, Availability]:
    """The engines that run here and read this model; a note for each that does not.

    Raises EngineUnavailableError with every reason when none is left.
    """
    found: dict[str, Availability] = {}
    reasons = []
    every = {name: registry.get(name) for name in asked or registry.default_names(model)}
    problems = {name: registry.unread(engine, model) for name, engine in every.items()}
    readers = {name: engine for name, engine in every.items() if problems[name] is None}
    answers = dict(
        zip(readers, availabilities(tuple(readers.values()), features=machine.features), strict=True)
    )
    for name, problem in problems.items():
        if problem is not None:
            reasons.append(f"{name}: {problem}")
            continue
        answer = answers[name]
        if answer.available:
            found[name] = answer
            if answer.note:
                observer(Event("note", f"{name}: {answer.note}"))
        else:
            reasons.append(f"{name}: {answer.reason}")
    if not found:
        raise EngineUnavailableError(f"no engine can run here: {'; '.join(reasons)}")
    for reason in reasons:
        observer(Event("note", f"not used: {reason}"))
    return found


def equipped_engines(
    running: Mapping[str, Availability], model: ModelInfo, home: Home, observer: Observer
) -> Mapping[str, Availability]:
    """Those that have a variant, or what it takes to make one; a note for each that has not.

    Raises EngineUnavailableError when none is left.
    """
    found, reasons = dict(running), []
    with VariantCache(home.variants) as cache:
        for name, answer in running.items():
            engine = registry.get(name)
            lacking = [cache.lacking(engine, model, r, answer.identity) for r in engine.recipes(model)]
            if all(lacking):
                del found[name]
                reasons.append(f"{name}: {lacking[0]}")
    if not found:
        raise EngineUnavailableError(f"no engine can run this model: {'; '.join(reasons)}")
    for reason in reasons:
        observer(Event("note", f"not used: {reason}"))
    return found


def build_space(request: SearchRequest, shop: Workshop) -> Space:
    """The space of the request, trimmed to machine, model, workload and memory.

    Raises UsageError for a variant that no engine makes, a setting that none has, a value that can't run, and
    for a workload above the model's context; NothingFeasibleError where the model can't fit into memory.
    """
    needed, context = shop.workload.context_tokens, shop.model.context_length
    if context and needed > context:
        raise UsageError(
            f"workload {shop.workload.name} ({shop.workload.prompt_tokens} prompt +"
            f" {shop.workload.output_tokens} output) needs {needed} tokens of context: the model has"
            f" {context}; choose a shorter workload"
        )
    every = {name: safe_dimensions(shop, shop.engine(name)) for name in shop.available}
    baseline = None
    if request.command is not None:
        baseline = from_command.baseline_of(request.command, shop)
        own = every[baseline.engine]
        every[baseline.engine] = from_command.around(
            own, baseline, answers_unchanged=request.answers_unchanged
        )
    check_names("setting", request.space, tuple(dict.fromkeys(d.name for ds in every.values() for d in ds)))
    check_variants(request, shop, [shop.engine(name) for name in every])
    parts: list[EngineSpace] = []
    for name, dimensions in every.items():
        engine = shop.engine(name)
        variants = searched_variants(request, shop, engine)
        if parts and not variants:
            continue
        chosen = searched_dimensions(request, shop, engine, dimensions)
        parts.append(EngineSpace(restrict(engine, dimensions, chosen), variants, chosen))
    return Space(shop.machine, shop.model, shop.workload, tuple(parts), baseline)


def safe_dimensions(shop: Workshop, engine: Engine) -> tuple[Dimension, ...]:
    """The engine's own dimensions and the host-wide ones, without the values that kill this build."""
    unsafe = shop.available[engine.name].unsafe
    every = (
        *engine.dimensions(shop.machine, shop.model, shop.workload),
        *placement.dimensions(engine, shop.machine),
    )
    return tuple(
        replace(d, values=tuple(value for value in d.values if (d.name, value) not in unsafe)) for d in every
    )


def open_study(request: SearchRequest, shop: Workshop, space: Space) -> StudyRecord:
    """Resume the study of this question, or begin one."""
    builds = {name: shop.build(name) for name in shop.available}
    name = f"{shop.model.name}-{shop.workload.name}"
    spec = StudySpec(
        fingerprint=shop.machine.fingerprint,
        model_digest=shop.model.digest,
        workload=shop.workload,
        engines=tuple(shop.available),
        space_hash=space.digest,
        storage_name=f"{name}-{shop.machine.fingerprint[:6]}-{space.digest[:6]}",
        name=name,
        objectives=request.objectives,
        quality_level=request.quality.name,
        limits=request.limits,
        seed=request.seed,
        sampler=SAMPLER_NAME,
        request=request.to_json(),
        environment=environment.around(shop.machine, environment.now(shop.machine)),
        engine_builds=builds,
    )
    return shop.store.open_study(spec, owner_token(), fresh=request.fresh or _rebuilt(shop, spec))


def _rebuilt(shop: Workshop, spec: StudySpec) -> bool:
    """Whether an engine's build or the kernel changed since this study's last run.

    Its samples speak for the old one.
    """
    earlier = [
        study
        for study in shop.store.studies(fingerprint=spec.fingerprint, model_digest=spec.model_digest)
        if study.lineage == spec.key
    ]
    if not earlier:
        return False
    changed = [
        what
        for what, then, now in (
            ("an engine's build", earlier[0].engine_builds, spec.engine_builds),
            ("the kernel", earlier[0].environment.get("kernel"), spec.environment.get("kernel")),
        )
        if then != now
    ]
    if changed:
        reason = " and ".join(changed)
        shop.observer(Event("note", f"{reason} has changed since the last search: measuring anew"))
    return bool(changed)


def prepare_variants(
    home: Home,
    model: str,
    engines: tuple[str, ...] | None,
    variants: tuple[str, ...] | None,
    observer: Observer,
    storage: str | None = None,
) -> list[dict[str, Any]]:
    """Make variants of a model ahead of a search; one row each, with the reason where one can't be made."""
    request = SearchRequest(
        model, WORKLOADS["chat"], QUALITY_LEVELS["any"], engines=engines, variants=variants
    )
    rows: list[dict[str, Any]] = []
    with (
        store_to_write(home, storage, observer) as store,
        closing(open_workshop(request, probe(), store, home, observer)) as shop,
    ):
        for part in build_space(request, shop).engines:
            reference = part.engine.reference(shop.model).label
            for label in dict.fromkeys((*part.variants, reference)):
                row: dict[str, Any] = {"engine": part.engine.name, "variant": label, "reason": None}
                try:
                    made = shop.variant(part.engine.name, label)
                    row |= {"bits_per_weight": made.bits_per_weight, "file_bytes": made.file_bytes}
                except ModelFileError as error:
                    row["reason"] = str(error)
                rows.append(row)
    return rows
