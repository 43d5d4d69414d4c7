"""What is looked for on every page: faults for readers who can't see it, and parts that jump."""

from __future__ import annotations

import time
from typing import Any

from tests.support.serving import Served

PLACES = ("home", "history", "study", "search", "chat")


def place_of(served: Served, name: str) -> str:
    """A page's place after the `#/`."""
    if name == "study":
        return f"study/{served.client.get('/v1/studies').json()['studies'][0]['id']}"
    return "" if name == "home" else name


def faults_of(page: Any) -> list[str]:
    """What axe-core finds, the least severe ones left out."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{fault['impact']} {fault['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for fault in found
        if fault["impact"] != "minor"
        for node in fault["nodes"]
    ]


def until(page: Any, expression: str, seconds: float = 60.0) -> None:
    """Return once an expression holds; Playwright's own way needs `eval`, which the policy refuses."""
    ends = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < ends, f"it did not come about in time: {expression}"
        page.wait_for_timeout(20)


def shifts(page: Any) -> float:
    """How much of what was visible has jumped since the page was opened (cumulative layout shift)."""
    return float(
        page.evaluate(
            """() => new Promise(resolve => {
              let sum = 0;
              new PerformanceObserver(list => {
                for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
              }).observe({ type: "layout-shift", buffered: true });
              requestAnimationFrame(() => requestAnimationFrame(() => resolve(sum)));
            })"""
        )
    )
