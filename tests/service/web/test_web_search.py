"""A search that is started, watched, found again after a reload, cancelled, and seen to its end."""

from __future__ import annotations

from typing import Any

import pytest

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


def test_what_the_service_refuses_is_shown_and_can_be_mended(simulated: Served, open_page: Any):
    opened = open_page(simulated, "search")
    page = opened.page
    page.get_by_label("Limits").fill("speed<=1")
    page.get_by_role("button", name="Start the search").click()
    page.get_by_text("unknown metric").wait_for()
    assert page.is_enabled("main form button")
    opened.forgive("422")
