"""The web page on a store of 200 studies and 100,000 trials: from opening it to data on the screen."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.bench_store import multiply
from tests.benchmarks.commands import cputune, environment
from tests.support.browser import browser, tab_of
from tests.support.serving import serving
from tuner.home import Home

LIMIT_MS = 300
PAGES = {"home": "", "history": "history", "study": "study/s-000007", "search": "search"}
SHOWN = """() => new Promise(resolve => {
  const seen = () => {
    const [mark] = performance.getEntriesByType("mark").filter(one => one.name.startsWith("shown:"));
    if (mark) resolve(mark.startTime); else requestAnimationFrame(seen);
  };
  seen();
})"""


def web(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """Milliseconds from the navigation to the frame that holds data, in browsers without a cache."""
    cputune(folder, "search", "--engines", "simulated", "--trials", "12", "--budget", "20s")
    home = Home(Path(environment(folder)["CPUTUNE_HOME"]))
    multiply(home.database, options.studies, options.trials)
    with serving(home, generator=False) as served, browser() as running:
        address = str(served.client.base_url)
        return [
            _timed(running, f"{address}/#/{place}", name, options.repeats) for name, place in PAGES.items()
        ]


def _timed(running: Any, address: str, name: str, repeats: int) -> dict[str, Any]:
    times_ms = []
    for _ in range(repeats + 1):
        with tab_of(running) as tab:
            tab.page.goto(address)
            times_ms.append(float(tab.page.evaluate(SHOWN)))
            # What comes after it, a study's charts, would be worked on while the next one is timed.
            tab.page.wait_for_load_state("networkidle")
    # The first call fills the service's and the file system's caches and is not counted.
    counted = times_ms[1:]
    return {
        "what": f"{name}: first paint with data",
        "command": "make bench ARGS=web",
        "median_ms": median(counted),
        "slowest_ms": max(counted),
        "limit": f"median < {LIMIT_MS} ms",
        "kept": median(counted) < LIMIT_MS,
    }
