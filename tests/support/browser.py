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


@dataclass
class Tab:
    """A page; `requests` are those that left the file itself, `complaints` what stood on the console."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, path: Path) -> None:
        """Load a file."""
        self.page.goto(path.resolve().as_uri())


def chromium() -> str:
    """The browser's path; skips the test where there is none, which CI may not."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: `make system-deps` installs it")
        pytest.skip("needs Chromium: `make system-deps` installs it")
    return found


@contextmanager
def tab(*, colours: Literal["light", "dark"] = "light", width: int = 1200) -> Iterator[Tab]:
    """An empty tab that may ask no host for anything."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = chromium()
    with playwright.sync_playwright() as driver:
        # Root in a container has no sandbox; what is opened here is our own.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            made = Tab(browser.new_page(color_scheme=colours, viewport={"width": width, "height": 900}))
            made.page.on(
                "request", lambda r: None if r.url.startswith("file:") else made.requests.append(r.url)
            )
            made.page.on(
                "console",
                lambda m: made.complaints.append(m.text) if m.type in ("error", "warning") else None,
            )
            made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
            yield made
        finally:
            browser.close()
