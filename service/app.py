"""The application: its endpoints, its errors, and what it starts and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from probes.errors import CputuneError
from probes.machine import probe
from profiles.store import Store
from service.answers import Answers
from service.documents import Problem
from service.generator.generator import State
from service.generator.launching import serving_of
from service.generator.pool import Pool
from service.generator.remembered import Remembered
from service.guard import Guard
from service.jobs import Jobs
from service.problems import RequestError, problem_of
from service.routes import (
    generator,
    health,
    machine,
    openai,
    profiles,
    recommendations,
    reference,
    searches,
    studies,
    views,
    web,
)
from service.settings import ServeSettings
from service.state import ServiceState
from service.swapping import follow, note, relieve
from tuner.home import Home

log = logging.getLogger(__name__)


def create_app(
    settings: ServeSettings,
    home: Home,
    keep: Callable[[ServiceState], Coroutine[object, object, None]] | None = None,
    routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """The application of one service; what it needs is opened when it starts.

    `keep` starts the generator and looks after it (`serve_generator`); `routers` have endpoints of its own.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with Store.open(settings.storage or home.database) as store:
            service = ServiceState(
                settings,
                home,
                store,
                probe(),
                Answers(store),
                Jobs(home, settings.storage),
                remembered=Remembered(settings.deterministic_cache),
            )
            app.state.service = service
            service.keeper = asyncio.create_task((keep or serve_generator)(service), name="keeper")
            service.keeper.add_done_callback(partial(_on_keeper_end, service))
            try:
                yield
            finally:
                await service.close()

    problem = {"model": Problem, "description": "What went wrong"}
    app = FastAPI(
        title="cputune",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={"4XX": problem, "5XX": problem},
    )
    own = (health, machine, profiles, recommendations, studies, searches, generator, openai, views)
    for module in (*own, web, reference):
        app.include_router(module.router)
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(CputuneError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_fault)
    app.add_middleware(
        Guard,
        hosts=(settings.host, *settings.allowed_hosts),
        token=settings.secret(),
        body_bytes=settings.body_bytes,
    )
    return app


async def serve_generator(service: ServiceState) -> None:
    """Choose what is served, start it, and follow what is published; why there is none is said in
    `no_generator`."""
    settings = service.settings
    if not settings.generator:
        service.no_generator = "it was started with --no-generator"
        return
    # What is published while the worker loads is newer than what it runs.
    before = service.answers.state()
    try:
        serving = await asyncio.to_thread(
            serving_of, settings, service.store, service.machine, service.home, note
        )
    except (CputuneError, OSError) as error:
        service.no_generator = str(error)
        log.error("no generator: %s", error)
        return
    service.pool = Pool(service.home.logs, queue=settings.queue, on_work=service.jobs.give_way)
    if await service.pool.start(serving) is not State.READY:
        log.error("no generator: %s", service.pool.main.reason)
        return
    await relieve(service)
    if settings.follow and settings.profile is None:
        await follow(service, before)


def _on_keeper_end(service: ServiceState, task: asyncio.Task[None]) -> None:
    """A fault of our own must not end what looks after the generator without a word."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("what looks after the generator has ended", exc_info=error)
        service.no_generator = service.no_generator or "a fault of the service's own; its log has more"


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, CputuneError)
    found = problem_of(error)
    return JSONResponse(found.body(), int(found.status), found.headers())


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    found = RequestError(422, f"{place}: {first['msg']}", param=place)
    return JSONResponse(found.body(), found.status)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    kind = "not_found_error" if error.status_code in (404, 405) else "invalid_request_error"
    found = RequestError(error.status_code, f"{request.method} {path}: {error.detail}", kind)
    return JSONResponse(found.body(), error.status_code, error.headers)


async def _on_fault(request: Request, error: Exception) -> JSONResponse:
    log.error("a fault in %s %s", request.method, request.url.path, exc_info=error)
    found = RequestError(500, "a fault of the service's own; its log has more", "server_error")
    return JSONResponse(found.body(), 500)
