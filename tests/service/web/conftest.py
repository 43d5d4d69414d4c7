"""A browser, a real search that is served with its real model, and services on the simulated engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import browser as browsers
from tests.support.browser import Tab
from tests.support.flow import Flow
from tests.support.serving import Served, serving
from tests.support.tiny import write_tiny_model
from tuner.home import Home
from tuner.models.source import DEMO

OpenPage = Callable[..., "Page"]


@dataclass
class Page:
    """The web page of a service in a tab; `page` is Playwright's."""

    tab: Tab
    address: str

    @property
    def page(self) -> Any:
        """Playwright's page."""
        return self.tab.page

    def go(self, place: str = "") -> None:
        """Open a part of the page and wait until it is shown."""
        self.page.goto(f"{self.address}/#/{place}")
        self.settled()
        if place.startswith("study/"):
            self.page.wait_for_selector(".charts:not([aria-busy])")

    def settled(self) -> None:
        """Wait until what was asked for is shown."""
        self.page.wait_for_selector("main:not([aria-busy])")

    def forgive(self, status: str) -> None:
        """Take off what the browser itself notes of answers with this status."""
        self.tab.complaints = [line for line in self.tab.complaints if f"status of {status}" not in line]

    def check(self) -> None:
        """AssertionError where it asked another host for something, or complained."""
        foreign = [url for url in self.tab.requests if not url.startswith(self.address + "/")]
        assert foreign == []
        assert self.tab.complaints == []


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Open the page of a service in a new tab; what it complained of is checked in the end."""
    with ExitStack() as stack:
        opened: list[Page] = []

        def make(served: Served, place: str | None = "", **options: Any) -> Page:
            """At `place`, or with None at the page's address without waiting for anything."""
            tab: AbstractContextManager[Tab] = browsers.tab_of(browser, **options)
            page = Page(stack.enter_context(tab), str(served.client.base_url).rstrip("/"))
            page.page.set_default_timeout(20_000)
            if place is None:
                page.page.goto(page.address)
            else:
                page.go(place)
            opened.append(page)
            return page

        yield make
        for page in opened:
            page.check()


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data folder after one short search of the demo model."""
    folder = tmp_path_factory.mktemp("searched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        flow = Flow(Home(folder / "home"), Path())
        flow.search(model=DEMO, engines=("llama_cpp",), variants=("source",), trials=4, pairs=1)
    return flow.home


@pytest.fixture(scope="session")
def real(searched: Home) -> Iterator[Served]:
    """A service on what was searched, with its generator."""
    with serving(searched, engine="llama_cpp", context_tokens=2048) as served:
        yield served


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose store holds one search on the simulated engine, without a generator."""
    folder = tmp_path_factory.mktemp("simulated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        flow = Flow(Home(folder / "home"), write_tiny_model(folder / "tiny.gguf"))
        flow.search(trials=4)
        with serving(flow.home, generator=False) as served:
            yield served
