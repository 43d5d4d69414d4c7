"""What a generator runs: the published profile, or the default where none is known, on the model's file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from probes.machine import Machine
from profiles.records import ProfileRecord
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, Config, Setting
from service.settings import ServeSettings
from tuner import engines
from tuner.engines.base import Engine, Scope
from tuner.events import Event, Observer
from tuner.home import Home
from tuner.measurement import placement
from tuner.request import SearchRequest, workload_named
from tuner.search.objectives import objective_of
from tuner.setup import choose_model, open_workshop
from tuner.workshop import Workshop


@dataclass(frozen=True)
class Serving:
    """One engine on one file: `context_tokens` is one conversation's, `streams` the largest batch.

    `profile` is None where the engine's own defaults are served.
    """

    model: str
    engine: Engine
    path: Path
    config: Config
    load_settings: Mapping[str, Setting]
    run_settings: Mapping[str, Setting]
    context_tokens: int
    streams: int
    environment: Mapping[str, str]
    affinity: tuple[int, ...] | None
    memory_bytes: int | None
    profile: ProfileRecord | None = None


def check_wanted(settings: ServeSettings, home: Home) -> None:
    """Raise for a name in the settings that is unknown, before anything is started."""
    workload_named(settings.workload)
    if settings.engine:
        engines.get(settings.engine)
    with Store.open(settings.storage or home.database) as store:
        if settings.profile:
            store.profile(settings.profile)
        elif settings.model:
            choose_model(store, home, settings.model)


def serving_of(
    settings: ServeSettings, store: Store, machine: Machine, home: Home, observer: Observer
) -> Serving:
    """What the settings ask for; makes the variant where the cache lacks it.

    Raises NotFoundError for an unknown profile, ModelFileError, EngineUnavailableError.
    """
    chosen = store.profile(settings.profile) if settings.profile else None
    names = {record.info.digest: record.name for record in store.models()}
    request = SearchRequest(
        names.get(chosen.model_digest) if chosen else settings.model,
        chosen.workload if chosen else workload_named(settings.workload),
        QUALITY_LEVELS[chosen.quality_level if chosen else "near-lossless"],
        engines=(chosen.config.engine,) if chosen else (settings.engine,) if settings.engine else None,
    )
    with closing(open_workshop(request, machine, store, home, observer)) as shop:
        profile = chosen or _best(shop, request)
        if profile is None:
            observer(Event("note", f"no profile is published for {shop.model.name}: serving the defaults"))
            engine = next(iter(shop.available))
            config = shop.engine(engine).default(machine, shop.model, shop.workload)
        else:
            config = profile.config
        return _serving(settings, shop, config, profile)


def _best(shop: Workshop, request: SearchRequest) -> ProfileRecord | None:
    return shop.store.best_profile(
        shop.machine.fingerprint,
        shop.model.digest,
        shop.workload,
        (objective_of(shop.workload),),
        request.quality.name,
        engines=tuple(shop.available),
    )


def _serving(
    settings: ServeSettings, shop: Workshop, config: Config, profile: ProfileRecord | None
) -> Serving:
    context = min(settings.context_tokens, shop.model.context_length or settings.context_tokens)
    engine = engines.get(config.engine)
    scopes = {d.name: d.scope for d in engine.dimensions(shop.machine, shop.model, shop.workload)}
    return Serving(
        model=shop.model.name,
        engine=engine,
        path=shop.path(config).absolute(),
        config=config,
        load_settings={name: value for name, value in config.settings if scopes.get(name) is Scope.LOAD},
        run_settings={
            name: value for name, value in config.settings if scopes.get(name) in (Scope.CONTEXT, Scope.RUN)
        },
        context_tokens=context,
        streams=max(settings.parallel, shop.workload.streams),
        environment=placement.environment(config),
        affinity=placement.affinity(config, shop.machine),
        memory_bytes=shop.machine.effective.memory_bytes,
        profile=profile,
    )
