"""The application: what it starts does not end unsaid."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.app import create_app
from service.settings import settings_from
from service.state import ServiceState
from tuner.home import Home


def test_a_fault_of_what_looks_after_the_generator_is_logged_and_told(
    home: Path, caplog: pytest.LogCaptureFixture
):
    async def broken(_: ServiceState) -> None:
        raise RuntimeError("a fault of ours")

    async def live() -> str:
        app = create_app(settings_from(), Home(home), broken)
        async with asyncio.timeout(10), app.router.lifespan_context(app):
            state: ServiceState = app.state.service
            while state.no_generator is None:
                await asyncio.sleep(0)
            return state.no_generator

    assert "its log has more" in asyncio.run(live())
    assert "a fault of ours" in caplog.text
