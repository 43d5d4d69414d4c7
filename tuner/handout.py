"""A published profile as something to start: its configuration with the file that it runs on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from shlex import quote

from probes.machine import probe
from profiles.errors import NotFoundError
from profiles.records import ProfileRecord
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, Config, Workload
from tuner.events import Observer
from tuner.export import Launch
from tuner.home import Home
from tuner.opening import known_store
from tuner.request import SearchRequest, quality_named
from tuner.setup import open_workshop


def launch_of(
    wanted: str, home: Home, observer: Observer, *, storage: str | None = None, makes: bool = True
) -> Launch:
    """The launch of a profile on this machine.

    `storage` is the database's URL or path; None for the data folder's own. A variant that is not in the
    cache is made, or refused without `makes`.

    Raises NotFoundError for an unknown profile, a model that is no longer registered or a refused variant,
    and what opening model and engine raises.
    """
    with known_store(home, storage) as store:
        profile = store.profile(wanted)
        with closing(open_workshop(as_search(store, profile), probe(), store, home, observer)) as shop:
            config = profile.config
            if not makes and not shop.is_made(config.engine, config.variant):
                raise NotFoundError(
                    f"{config.variant} of {shop.model.name}, which {profile.id} runs on, is not made here",
                    hint=f"make it: cputune models prepare {quote(shop.model.name)}"
                    f" --variants {quote(config.variant)} --engines {config.engine}",
                )
            path = str(shop.path(config).absolute())
            return Launch.of(config, path, profile.workload, shop.machine, remarks(profile))


def as_search(store: Store, profile: ProfileRecord) -> SearchRequest:
    """The question that a profile answers, for its own engine; NotFoundError where its model is not
    registered any more."""
    names = {record.info.digest: record.name for record in store.models()}
    if profile.model_digest not in names:
        raise NotFoundError(
            f"the model of {profile.id} is not registered any more", hint="add it: cputune models add FILE"
        )
    return SearchRequest(
        names[profile.model_digest],
        profile.workload,
        quality_named(profile.quality_level),
        engines=(profile.config.engine,),
    )


def path_of(
    config: Config, model: str, workload: Workload, store: Store, home: Home, observer: Observer
) -> Path:
    """The file that a configuration of a registered model runs on, made where it is not in the cache.

    Raises what opening model and engine raises.
    """
    request = SearchRequest(model, workload, QUALITY_LEVELS["any"], engines=(config.engine,))
    with closing(open_workshop(request, probe(), store, home, observer)) as shop:
        return shop.path(config).absolute()


def remarks(profile: ProfileRecord) -> tuple[str, ...]:
    """What stands above an export."""
    claim = ""
    if profile.speedup is not None and str(profile.status) != "no_gain":
        load = ", measured under load" if profile.conditions == "loaded" else ""
        claim = f", {profile.speedup.estimate:.2f}x the speed of the default ({profile.status}{load})"
    made = profile.created_at.date().isoformat()
    return (f"cputune profile {profile.id} of {made}, {profile.workload.name}{claim}",)
