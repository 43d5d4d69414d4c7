"""Home, history and one study, with what a real search found: shown whole, drawn, at every width."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.looks import PLACES, faults_of, place_of, shifts, until
from tests.support.serving import Served

pytestmark = pytest.mark.real


def test_home_tells_the_machine_and_the_best_profile(real: Served, open_page: Any):
    seen = open_page(real).page
    overview = real.client.get("/v1/overview").json()
    assert seen.inner_text("h1") == overview["machine"]["model_name"]
    (card,) = seen.query_selector_all("article.profile")
    text = card.inner_text()
    (best,) = real.client.get("/v1/best-profiles").json()["best"]
    assert best["model"] in text
    assert "chat: 128 + 128 tokens · near-lossless" in text
    assert any(word in text for word in ("faster than the default", "the default is the best that was found"))


def test_an_export_is_shown_and_copied(real: Served, open_page: Any):
    page = open_page(real).page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_text("Export", exact=True).click()
    page.get_by_role("button", name="llama-server").click()
    page.get_by_text("Copied for llama-server.").wait_for()
    assert "llama-server" in page.inner_text("article pre")
    assert page.evaluate("navigator.clipboard.readText()") == page.inner_text("article pre")


def test_the_history_leads_to_a_study_with_its_charts(real: Served, open_page: Any):
    page = open_page(real, "history")
    page.page.click("td a")
    page.page.wait_for_selector(".charts:not([aria-busy])")
    page.settled()
    drawn = page.page.eval_on_selector_all(
        ".chart", "all => Object.fromEntries(all.map(e => [e.id, e.querySelectorAll('.main-svg').length]))"
    )
    assert {"chart-history", "chart-front", "chart-variants"} <= set(drawn)
    assert all(drawn.values())
    texts = page.page.eval_on_selector_all(".xtitle, .ytitle", "all => all.map(e => e.textContent)")
    assert {"trial", "response_ms (ms)", "peak_rss_mib (MiB)"} <= set(texts)
    lower = page.page.eval_on_selector_all(
        ".chart", "all => all.filter(e => e.clientHeight + 1 < e.querySelector('.main-svg').clientHeight)"
    )
    assert lower == []


def test_a_point_of_the_front_tells_its_settings(real: Served, open_page: Any):
    page = open_page(real, place_of(real, "study")).page
    page.locator("#chart-front .point").first.hover(force=True)
    page.wait_for_selector("#chart-front .hovertext")
    assert "n_threads=" in page.text_content("#chart-front .hoverlayer")


def test_trials_are_filtered_and_sorted(real: Served, open_page: Any):
    page = open_page(real, place_of(real, "study")).page
    rows = "section:last-child tbody tr"
    page.wait_for_selector(rows)
    all_of_them = len(page.query_selector_all(rows))
    page.get_by_label("Settings or reason").fill("as the default")
    until(page, f"document.querySelectorAll('{rows}').length === 1")
    page.get_by_label("Settings or reason").fill("")
    page.get_by_role("button", name="response_ms").click()
    values = [row.inner_text().split("\t")[2] for row in page.query_selector_all(rows)]
    assert len(values) == all_of_them
    numbers = [float(value.split()[0].replace(",", "")) for value in values if value != "-"]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("width", [1200, 375])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_page_is_sound_in_every_look(real: Served, open_page: Any, colours: str, width: int):
    page = open_page(real, colours=colours, width=width)
    for name in PLACES:
        page.page.goto("about:blank")
        page.go(place_of(real, name))
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert faults_of(page.page) == [], name
        assert shifts(page.page) < 0.02, name


def test_the_keyboard_reaches_everything(real: Served, open_page: Any):
    page = open_page(real).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "page"
    page.get_by_role("link", name="History").focus()
    page.keyboard.press("Enter")
    until(page, "document.title.startsWith('History')")
    # A reader of the screen is brought to the new page.
    assert page.evaluate("document.activeElement.id") == "page"
    assert page.get_attribute("nav a[aria-current]", "href") == "#/history"


def test_the_colours_of_charts_follow_the_reader(real: Served, open_page: Any):
    page = open_page(real, place_of(real, "study")).page
    ink = "getComputedStyle(document.querySelector('.xtitle')).fill"
    before = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    until(page, f"{ink} !== '{before}'")


def test_without_plotly_the_page_works_and_says_so(
    real: Served, open_page: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("service.routes.views.plotly_script", lambda: None)
    monkeypatch.setattr("service.routes.web.plotly_script", lambda: None)
    page = open_page(real, place_of(real, "study"))
    assert "pip install 'cputune[plot]'" in page.page.inner_text(".charts")
    page.page.wait_for_selector("section:last-child tbody tr")
    assert real.client.get("/plotly.js").status_code == 404


def test_an_unknown_study_is_a_sentence(real: Served, open_page: Any):
    page = open_page(real)
    page.page.goto(f"{page.address}/#/study/s-none")
    page.page.wait_for_selector("main .fault")
    assert "s-none" in page.page.inner_text("main .fault")
    page.forgive("404")
