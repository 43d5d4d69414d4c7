"""The system's own Chromium, driven without a window, with what it asked for and complained of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
Colours = Literal["light", "dark"]


@dataclass
class Tab:
    """A page; `requests` are those that left the file itself, `complaints` what stood on the console."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, path: Path) -> None:
        """Load a file."""
        self.page.goto(path.resolve().as_uri())

    def listen(self) -> None:
        """Begin to note requests and complaints."""
        self.page.on("request", lambda r: None if r.url.startswith("file:") else self.requests.append(r.url))
        self.page.on(
            "console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))


def chromium() -> str:
    """The browser's path; skips the test where there is none, which CI may not."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: `make system-deps` installs it")
        pytest.skip("needs Chromium: `make system-deps` installs it")
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A running browser without a tab."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = chromium()
    with playwright.sync_playwright() as driver:
        # Root in a container has no sandbox; what is opened here is our own.
        running = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield running
        finally:
            running.close()


@contextmanager
def tab_of(
    running: Any, *, colours: Colours = "light", width: int = 1200, height: int = 900
) -> Iterator[Tab]:
    """An empty tab of a browser, with a profile of its own."""
    context = running.new_context(color_scheme=colours, viewport={"width": width, "height": height})
    try:
        made = Tab(context.new_page())
        made.listen()
        yield made
    finally:
        context.close()
