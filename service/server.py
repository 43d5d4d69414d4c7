"""Listens for an application until a signal ends it, streams first."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from contextlib import suppress

import psutil
import uvicorn
from fastapi import FastAPI

from service.settings import ServeSettings
from service.state import ServiceState
from tuner.errors import UsageError

log = logging.getLogger(__name__)

GRACEFUL_S = 1
"""What connections get to end after their streams have got their last event."""


class Server(uvicorn.Server):
    """Ends the streams with an event of their own before it waits for their connections.

    It is one process for one application: a second one would load the model again.
    """

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACEFUL_S,
            )
        )
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new connections, end generators and searches, then everything else."""
        for server in self.servers:
            server.close()
        state: ServiceState | None = getattr(self._app.state, "service", None)
        if state is not None:
            await state.close()
        await super().shutdown(sockets)


def run(app: FastAPI, settings: ServeSettings) -> None:
    """Listen where the settings say, until SIGINT or SIGTERM; returns then.

    Raises UsageError where the address can't be had.
    """
    with listening(settings.host, settings.port) as listener:
        host, port = listener.getsockname()[:2]
        log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
        # Uvicorn raises the signal that ended it once more when it is done, for whoever was there before.
        before = {number: signal.signal(number, _let_go) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            Server(app).run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; UsageError where the address is taken or none of this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"can't listen on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"can't listen on {host}, port {port}: {error.strerror}; --port 0 takes a free one"
        ) from error
    return listener


def _let_go(number: int, frame: object) -> None:
    """Everything has ended but threads of the pool, and the process ends after them."""
    del number, frame
    threading.Thread(target=_end_children, name="ending", daemon=True).start()


def _end_children() -> None:
    """Until the process ends, end the programs that threads wait for: an engine that is looked at, a variant
    that is being made, what they would begin next."""
    this, pause = psutil.Process(), threading.Event()
    while not pause.wait(0.05):
        for child in this.children():
            with suppress(psutil.NoSuchProcess):
                child.kill()
