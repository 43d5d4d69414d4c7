"""Which profiles the generators run after the first one: as asked, under load, when one is published."""

from __future__ import annotations

import asyncio
import logging

from probes.errors import CputuneError
from service.generator.launching import Serving, best_published, serving_of
from service.problems import RequestError
from service.settings import ServeSettings
from service.state import ServiceState
from tuner.events import Event

log = logging.getLogger(__name__)

FOLLOW_S = 5.0
"""How often the store is asked whether it has changed."""


def note(event: Event) -> None:
    """An event of the library in the log."""
    if event.message:
        log.info("%s", event.message)


async def relieve(service: ServiceState) -> None:
    """Start the second worker where the settings allow one and a profile is published for it."""
    pool = service.running()
    serving = await _relief(service, pool.main.serving)
    if serving is None:
        return
    try:
        await pool.relieve(serving)
    except RequestError as error:
        log.error("no second worker: %s", error)


async def swap(service: ServiceState, profile: str | None) -> Serving:
    """Serve a profile by its id, the best one (None) or the engine's defaults, without dropping a request.

    Raises NotFoundError for an unknown one, RequestError where its worker does not come up, or where it
    belongs to another model.
    """
    pool = service.running()
    # A service that was started with a profile may run another model than its settings would choose.
    update = {"profile": profile, "model": pool.main.serving.model}
    serving = await _serving(service, service.settings.model_copy(update=update))
    if serving.model != pool.main.serving.model:
        raise RequestError(
            400,
            f"profile {profile} is for {serving.model}: this service runs {pool.main.serving.model}",
            param="profile",
        )
    await pool.swap(serving, await _relief(service, serving))
    return serving


async def follow(service: ServiceState, seen: object) -> None:
    """Swap to every profile that becomes the best, also under load; ends only when it is cancelled.

    What was asked for by name stays until then. `seen` is the store's state before what runs was chosen.
    """
    pool = service.running()
    known = pool.main.serving.profile_id
    known_under_load = None if pool.relief is None else pool.relief.serving.profile_id
    told = ""
    while True:
        await asyncio.sleep(FOLLOW_S)
        now = service.answers.state()
        if now is not None and now == seen:
            continue
        try:
            best = await _best(service, service.settings)
            under_load = await _best(service, _under_load(service))
        except CputuneError as error:
            # A store that is locked for a moment, a model that was removed: it may be otherwise next time.
            if str(error) != told:
                log.error("the best profile can't be told: %s", error)
            told = str(error)
            continue
        seen, told = now, ""
        changed_under_load = under_load not in (None, known_under_load)
        known_under_load = under_load or known_under_load
        if best is not None and best != known:
            known = best
            log.info("profile %s is published: its worker is started", best)
            try:
                await swap(service, best)
            except (CputuneError, OSError) as error:
                log.error("the new profile is not served: %s", error)
        elif changed_under_load:
            log.info("profile %s is published, for many requests: its worker is started", under_load)
            relief = await _relief(service, pool.main.serving)
            if relief is not None:
                pool.relieve_later(relief)


async def _best(service: ServiceState, settings: ServeSettings | None) -> str | None:
    if settings is None:
        return None
    serving = service.running().main.serving
    best = await asyncio.to_thread(best_published, service.store, service.machine, settings, serving)
    return None if best is None else best.id


def _under_load(service: ServiceState) -> ServeSettings | None:
    """The settings of the second worker; None where none is allowed."""
    settings = service.settings
    if settings.load_workload is None:
        return None
    model = service.running().main.serving.model
    update = {"workload": settings.load_workload, "profile": None, "model": model}
    return settings.model_copy(update=update)


async def _serving(service: ServiceState, settings: ServeSettings) -> Serving:
    return await asyncio.to_thread(serving_of, settings, service.store, service.machine, service.home, note)


async def _relief(service: ServiceState, main: Serving) -> Serving | None:
    """What the second worker runs; None where it is not allowed, or nothing else is published for it."""
    wanted = _under_load(service)
    if wanted is None:
        return None
    try:
        serving = await _serving(service, wanted)
    except (CputuneError, OSError) as error:
        log.error("no second worker: %s", error)
        return None
    if serving.profile is None or serving.profile == main.profile:
        log.info("no second worker: no other profile is published for %s", wanted.workload)
        return None
    return serving
