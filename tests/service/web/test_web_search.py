"""A search that is started, watched, found again after a reload, cancelled, and seen to its end."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from service.jobs import Job, JobState
from tests.support.looks import faults_of, until
from tests.support.serving import Served


def start(page: Any, budget: str) -> None:
    page.get_by_label("Engines").select_option("simulated")
    page.get_by_label("Budget").fill(budget)
    page.get_by_label("Start anew").check()
    page.get_by_role("button", name="Start the search").click()


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPUTUNE_LOCK", str(tmp_path / "measuring.lock"))


def test_a_search_is_watched_survives_a_reload_and_is_cancelled(simulated: Served, open_page: Any):
    opened = open_page(simulated, "search")
    page = opened.page
    start(page, "60s")
    page.wait_for_selector(".recent tbody tr")
    assert page.inner_text(".live h2") == "Searching …"
    assert page.inner_text(".stages").startswith("baseline")
    assert page.is_hidden("main form")
    until(page, "document.querySelector('[role=timer]').textContent.endsWith('left')")
    assert "rounds dropped" in page.inner_text(".live").lower()
    assert faults_of(page) == []
    page.reload()
    opened.settled()
    page.wait_for_selector(".recent tbody tr")
    assert page.inner_text(".stages").startswith("baseline")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled: what was finished is kept").wait_for()
    assert page.is_enabled("main form button")
    assert simulated.state.jobs.running is None


def test_a_search_is_seen_to_its_end(simulated: Served, open_page: Any):
    page = open_page(simulated, "search", width=375).page
    start(page, "10s")
    page.get_by_role("heading", name="Done").wait_for(timeout=150_000)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert faults_of(page) == []
    page.get_by_role("link", name="See the study").click()
    page.wait_for_selector(".charts:not([aria-busy])")
    assert page.inner_text("h1") == "tiny"


def test_a_connection_that_breaks_is_made_anew_and_nothing_is_shown_twice(simulated: Served, open_page: Any):
    page = open_page(simulated, "search").page
    cut: list[str | None] = []

    def once(route: Any) -> None:
        """The first answer ends after one event, as where somebody in between cuts it."""
        cut.append(route.request.headers.get("last-event-id"))
        if len(cut) > 1:
            route.continue_()
            return
        event = {"event": "stage", "message": "baseline"}
        route.fulfill(body=f"id: 0\ndata: {json.dumps(event)}\n\n", content_type="text/event-stream")

    page.route("**/events", once)
    start(page, "60s")
    # Until then the last search is shown.
    page.get_by_role("button", name="Cancel").wait_for()
    page.wait_for_selector(".recent tbody tr")
    assert cut == ["-1", "0"]
    assert page.inner_text(".live h2") == "Searching …"
    # Home leads to what runs.
    page.get_by_role("link", name="Home").click()
    page.get_by_role("link", name="watch it").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled: what was finished is kept").wait_for()


def test_what_a_daemon_compared_is_no_search(simulated: Served, open_page: Any):
    job = Job("c0ffee", ("default", "p-1"), datetime.now(UTC), JobState.DONE, command="compare")
    job.stopping.close()
    job.result = {"verdict": "b"}
    simulated.state.jobs._jobs[job.id] = job
    page = open_page(simulated, "search").page
    assert "compare" not in page.inner_text("main")
    assert page.query_selector("main .fault:not(:empty)") is None


def test_what_the_service_refuses_is_shown_and_can_be_mended(simulated: Served, open_page: Any):
    opened = open_page(simulated, "search")
    page = opened.page
    page.get_by_label("Limits").fill("speed<=1")
    page.get_by_role("button", name="Start the search").click()
    page.get_by_text("unknown metric").wait_for()
    assert page.is_enabled("main form button")
    opened.forgive("422")
