"""What a generator runs: the published profile, or the default where none is known, on the model's file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from probes.machine import Machine
from profiles.errors import NotFoundError
from profiles.records import ProfileRecord, digest_of
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, Config, Role, Setting
from service.settings import ServeSettings
from tuner import engines
from tuner.engines.base import Engine, Scope
from tuner.errors import UsageError
from tuner.events import Event, Observer
from tuner.home import Home
from tuner.measurement import placement
from tuner.models.source import parts_of
from tuner.narrowing import kv_token_bytes, problem_of
from tuner.request import SearchRequest, workload_named
from tuner.search.objectives import objective_of
from tuner.setup import choose_model, open_workshop
from tuner.workshop import Workshop


@dataclass(frozen=True)
class Serving:
    """One engine on one file: `context_tokens` is one conversation's, `streams` the largest batch.

    Each place in the batch keeps the KV cache of its last conversation. `shared_settings` are `run_settings`
    with the threads for half of the CPUs. `tuned_streams` is how many requests at a time the configuration
    was found for. `profile` is None where the engine's own defaults are served.
    """

    model: str
    model_digest: str
    engine: Engine
    path: Path
    config: Config
    load_settings: Mapping[str, Setting]
    run_settings: Mapping[str, Setting]
    shared_settings: Mapping[str, Setting]
    context_tokens: int
    streams: int
    tuned_streams: int
    environment: Mapping[str, str]
    affinity: tuple[int, ...] | None
    memory_bytes: int | None
    profile: ProfileRecord | None = None

    @property
    def profile_id(self) -> str | None:
        """The profile's id; None for the engine's own defaults."""
        return None if self.profile is None else self.profile.id

    @property
    def identity(self) -> str:
        """Equal where equal requests have equal answers: a name may come to mean other weights, and the
        defaults other settings."""
        return digest_of(self.model_digest, self.config.key, self.context_tokens)


DEFAULTS = "default"
"""In place of a profile's id: the engine's own defaults."""


def check_wanted(settings: ServeSettings, home: Home) -> None:
    """Raise for a name in the settings that is unknown, before anything is started."""
    workload_named(settings.workload)
    if settings.load_workload is not None:
        workload_named(settings.load_workload)
    if settings.engine:
        engines.get(settings.engine)
    with Store.open(settings.storage or home.database) as store:
        if settings.profile and settings.profile != DEFAULTS:
            store.profile(settings.profile)
        elif settings.model:
            choose_model(store, home, settings.model)


def serving_of(
    settings: ServeSettings, store: Store, machine: Machine, home: Home, observer: Observer
) -> Serving:
    """What the settings ask for; makes the variant where the cache lacks it.

    Raises NotFoundError for an unknown profile, ModelFileError, EngineUnavailableError.
    """
    plain = settings.profile == DEFAULTS
    chosen = store.profile(settings.profile) if settings.profile and not plain else None
    names = {record.info.digest: record.name for record in store.models()}
    if chosen is not None and chosen.model_digest not in names:
        raise NotFoundError(f"the model of {chosen.id} is not registered any more; add it: models add")
    request = SearchRequest(
        names.get(chosen.model_digest) if chosen else settings.model,
        chosen.workload if chosen else workload_named(settings.workload),
        QUALITY_LEVELS[chosen.quality_level if chosen else "near-lossless"],
        engines=(chosen.config.engine,) if chosen else (settings.engine,) if settings.engine else None,
    )
    with closing(open_workshop(request, machine, store, home, observer)) as shop:
        profile = chosen
        if profile is None and not plain:
            profile = _best(store, machine, shop.model.digest, request, tuple(shop.available))
        if profile is None and not plain:
            observer(Event("note", f"no profile is published for {shop.model.name}: serving the defaults"))
        if profile is None:
            engine = next(iter(shop.available))
            config = shop.engine(engine).default(machine, shop.model, shop.workload)
        else:
            config = profile.config
            problem = problem_of(shop, shop.engine(config.engine), config)
            if problem is not None:
                raise UsageError(f"profile {profile.id} can't run here: {problem}")
        return _serving(settings, shop, config, profile)


def best_published(
    store: Store, machine: Machine, settings: ServeSettings, serving: Serving
) -> ProfileRecord | None:
    """The best profile now for what the settings ask and this model."""
    request = SearchRequest(serving.model, workload_named(settings.workload), QUALITY_LEVELS["near-lossless"])
    wanted = (settings.engine,) if settings.engine else None
    return _best(store, machine, store.model(serving.model).info.digest, request, wanted)


def _best(
    store: Store, machine: Machine, digest: str, request: SearchRequest, engines_: tuple[str, ...] | None
) -> ProfileRecord | None:
    return store.best_profile(
        machine.fingerprint,
        digest,
        request.workload,
        (objective_of(request.workload),),
        request.quality.name,
        engines=engines_,
    )


def _serving(
    settings: ServeSettings, shop: Workshop, config: Config, profile: ProfileRecord | None
) -> Serving:
    engine = engines.get(config.engine)
    path = shop.path(config).absolute()
    context = min(settings.context_tokens, shop.model.context_length or settings.context_tokens)
    described = {d.name: d for d in engine.dimensions(shop.machine, shop.model, shop.workload)}

    def of_scope(*scopes: Scope) -> dict[str, Setting]:
        return {n: v for n, v in config.settings if n in described and described[n].scope in scopes}

    run_settings = of_scope(Scope.CONTEXT, Scope.RUN)
    half = max(1, shop.machine.effective.cpu_count // 2)
    return Serving(
        model=shop.model.name,
        model_digest=shop.model.digest,
        engine=engine,
        path=path,
        config=config,
        load_settings=of_scope(Scope.LOAD, Scope.PROCESS),
        run_settings=run_settings,
        shared_settings={
            name: min(value, half)
            if isinstance(value, int)
            and described[name].role is Role.THREADS
            and described[name].scope is Scope.RUN
            else value
            for name, value in run_settings.items()
        },
        context_tokens=context,
        streams=_places(settings, shop, path, context),
        tuned_streams=shop.workload.streams,
        environment=placement.environment(config),
        affinity=placement.affinity(config, shop.machine),
        memory_bytes=shop.machine.effective.memory_bytes,
        profile=profile,
    )


def _places(settings: ServeSettings, shop: Workshop, path: Path, context_tokens: int) -> int:
    """How many conversations' KV caches are kept: as many as may run, or as the memory holds.

    Raises UsageError where not even one fits.
    """
    wanted = max(settings.parallel, shop.workload.streams)
    each = context_tokens * kv_token_bytes(shop.model)
    room = shop.machine.effective.memory_bytes
    if settings.kv_mib is not None:
        allowed = settings.kv_mib << 20
    elif room is not None:
        allowed = (room - size_bytes(path)) // 2
    else:
        return wanted
    places = min(wanted, allowed // each) if each else wanted
    if places < 1:
        raise UsageError(
            f"the KV cache of one conversation of {context_tokens} tokens takes {each / 2**20:.0f} MiB,"
            f" {max(0, allowed) / 2**20:.0f} MiB are allowed: lower --context-tokens"
        )
    if places < wanted:
        shop.observer(
            Event("note", f"{places} requests at a time, not {wanted}: {allowed >> 20} MiB of KV cache fit")
        )
    return places


def size_bytes(path: Path) -> int:
    """What a model's file takes with its other parts, or all files of its folder."""
    files = parts_of(path) if path.is_file() else [found for found in path.rglob("*") if found.is_file()]
    return sum(file.stat().st_size for file in files)
