"""A look at machine, model, engine build and published profiles, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from probes.machine import Machine, probe
from profiles import select
from profiles.errors import NotFoundError
from profiles.records import ProfileRecord, PromotionRecord
from profiles.vocabulary import Workload
from service.daemon.decide import Candidate
from service.daemon.memory import Circumstances
from service.daemon.promotion import before, kept_out
from service.state import ServiceState
from tuner import engines, environment
from tuner.engines.base import Engine
from tuner.errors import EngineUnavailableError
from tuner.measurement.availability import availability
from tuner.search.objectives import objective_of
from tuner.setup import choose_model

QUALITY = "near-lossless"


@dataclass(frozen=True)
class Seen:
    """What was found: profiles by id; `model` is the registered name, `engine` that of what runs."""

    circumstances: Circumstances
    machine: Machine
    model: str
    engine: str
    known: str | None
    candidate: Candidate | None
    previous: str | None


def see(
    service: ServiceState,
    running: str | None,
    history_of: Callable[[tuple[str, str]], Sequence[PromotionRecord]],
    workload: Workload,
) -> Seen:
    """Look; raises CputuneError where model or engine can't be used, and StoreError."""
    machine = probe()
    _, model = choose_model(service.store, service.home, service.settings.model)
    record = _profile(service, running)
    builds: dict[str, str] = {}

    def build(name: str) -> str:
        if name not in builds:
            builds[name] = _build(engines.get(name), machine.features)
        return builds[name]

    wanted = service.settings.engine
    names = (record.config.engine,) if record else (wanted,) if wanted else engines.default_names(model)
    engine = next((name for name in names if build(name)), None)
    if engine is None:
        raise EngineUnavailableError(f"{', '.join(names)}: does not run here now; see cputune engines")
    here = Circumstances(
        fingerprint=machine.fingerprint,
        model_digest=model.digest,
        engine_build=build(engine),
        kernel=machine.kernel or "",
        governors=", ".join(environment.now(machine).governors),
    )
    history = history_of(here.question)
    answers = _answers(service, here, workload, kept_out(history))
    current = [p for p in answers if p.engine_build == build(p.config.engine) and p.kernel == here.kernel]
    newest = select.best(current)
    known = newest or select.best([p for p in answers if build(p.config.engine)])
    return Seen(
        circumstances=here,
        machine=machine,
        model=model.name,
        engine=engine,
        known=known.id if known else None,
        candidate=_candidate(newest, record),
        previous=before(history),
    )


def _candidate(newest: ProfileRecord | None, running: ProfileRecord | None) -> Candidate | None:
    if newest is None or (running is not None and newest.created_at <= running.created_at):
        return None
    now = newest.baseline_config if running is None else running.config
    is_same = newest.config == now and (running is None or newest.variant_digest == running.variant_digest)
    return Candidate(newest.id, is_same)


def _answers(
    service: ServiceState, here: Circumstances, workload: Workload, out: frozenset[str]
) -> list[ProfileRecord]:
    """What was published for exactly this question, but for what was refused or given up."""
    every = service.store.profiles(
        fingerprint=here.fingerprint, model_digest=here.model_digest, workload=workload
    )
    wanted = service.settings.engine
    return [
        profile
        for profile in every
        if profile.objectives == (objective_of(workload),)
        and profile.quality_level == QUALITY
        and not profile.limits
        and profile.id not in out
        and wanted in (None, profile.config.engine)
    ]


def _profile(service: ServiceState, wanted: str | None) -> ProfileRecord | None:
    if wanted is None:
        return None
    try:
        return service.store.profile(wanted)
    except NotFoundError:
        return None


def _build(engine: Engine, features: Sequence[str]) -> str:
    """The build that a new process would load, as `tuner.workshop.Workshop.build` writes it; empty where
    the engine does not run."""
    found = availability(engine, features=features)
    return f"{found.version} {found.build or ''}".strip() if found.available else ""
