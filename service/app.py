"""The application: its endpoints, its errors, and what it starts and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from probes.errors import CputuneError
from probes.machine import probe
from profiles.store import Store
from service.answers import Answers
from service.generator.generator import Generator, State
from service.generator.launching import serving_of
from service.guard import Guard
from service.jobs import Jobs
from service.problems import RequestError, problem_of
from service.routes import health, machine, openai, profiles, searches, studies
from service.settings import ServeSettings
from service.state import ServiceState
from tuner.events import Event
from tuner.home import Home

log = logging.getLogger(__name__)


def create_app(settings: ServeSettings, home: Home) -> FastAPI:
    """The application of one service; what it needs is opened when it starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with Store.open(settings.storage or home.database) as store:
            service = ServiceState(
                settings, home, store, probe(), Answers(store), Jobs(home, settings.storage)
            )
            app.state.service = service
            starting = asyncio.create_task(start_generator(service))
            try:
                yield
            finally:
                starting.cancel()
                await asyncio.gather(starting, return_exceptions=True)
                await service.jobs.close()
                if service.generator is not None:
                    await service.generator.close()

    app = FastAPI(title="cputune", lifespan=lifespan)
    for module in (health, machine, profiles, studies, searches, openai):
        app.include_router(module.router)
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


async def start_generator(service: ServiceState) -> None:
    """Choose what is served and start it; why there is none is said in `no_generator`."""
    if not service.settings.generator:
        service.no_generator = "it was started with --no-generator"
        return
    try:
        serving = await asyncio.to_thread(
            serving_of, service.settings, service.store, service.machine, service.home, _note
        )
    except (CputuneError, OSError) as error:
        service.no_generator = str(error)
        log.error("no generator: %s", error)
        return
    generator = Generator(serving, service.home.logs / "generator.log", queue=service.settings.queue)
    service.generator = generator
    generator.start()
    if await generator.settled() is State.FAILED:
        log.error("no generator: %s", generator.reason)


def _note(event: Event) -> None:
    if event.message:
        log.info("%s", event.message)


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
    found = RequestError(error.status_code, f"{request.method} {path}: {error.detail}", "not_found_error")
    return JSONResponse(found.body(), error.status_code, error.headers)


async def _on_fault(request: Request, error: Exception) -> JSONResponse:
    log.error("a fault in %s %s", request.method, request.url.path, exc_info=error)
    found = RequestError(500, "a fault of the service's own; its log has more", "server_error")
    return JSONResponse(found.body(), 500)
