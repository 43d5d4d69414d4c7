"""The chat on the real model: text as it comes, figures, stop, failures, and both profiles side by side."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from service.generator.generator import State
from tests.support.looks import faults_of, until
from tests.support.serving import Served
from tests.support.waiting import wait_for

pytestmark = pytest.mark.real

DONE = "article[data-role=assistant]:not([aria-busy])"
STORY = "Tell me a long story about a lighthouse and the sea."
COUNT_WRITES = """() => {
  window.seen = { writes: 0, frames: 0 };
  new MutationObserver(all => {
    for (const one of all) if (one.type === "characterData") window.seen.writes += 1;
  }).observe(document.querySelector(".log"), { characterData: true, subtree: true });
  const frame = () => { window.seen.frames += 1; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""


def say(page: Any, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def answered(page: Any, count: int = 1) -> str:
    """The text of the last answer, once so many are whole."""
    until(page, f"document.querySelectorAll('{DONE}').length === {count}")
    return str(page.locator(f"{DONE} .words").last.inner_text())


def stop_when_long(page: Any, characters: int = 40) -> None:
    words = "document.querySelector('[data-role=assistant]:last-child .words')"
    until(page, f"{words}.textContent.length > {characters}")


def test_an_answer_comes_as_it_is_made_with_its_figures(real: Served, open_page: Any):
    page = open_page(real, "chat").page
    page.evaluate(COUNT_WRITES)
    say(page, "Say hello in one short sentence.")
    text = answered(page)
    assert len(text) > 3
    seen = page.evaluate("window.seen")
    assert 0 < seen["writes"] <= seen["frames"] + 1
    figures = page.inner_text(f"{DONE} .figures")
    for name in ("First token", "Tokens/s", "Cached", "Profile", "Took"):
        assert name.lower() in figures.lower()
    assert real.generator.serving.model in page.inner_text("h1")
    say(page, "Once more, please.")
    answered(page, 2)
    cached = page.locator(f"{DONE} .figures").last.inner_text().split("Cached")[1].split()
    assert int(cached[0]) > 0
    assert faults_of(page) == []


def test_a_second_enter_sends_nothing_and_stop_keeps_what_came(real: Served, open_page: Any):
    page = open_page(real, "chat").page
    page.get_by_label("Message").fill(STORY)
    page.get_by_label("Message").press("Enter")
    page.get_by_label("Message").fill(STORY)
    page.get_by_label("Message").press("Enter")
    stop_when_long(page)
    assert page.locator("[data-role=user]").count() == 1
    assert real.generator.load == (1, 0)
    page.get_by_role("button", name="Stop").click()
    assert len(answered(page)) > 40
    assert "stopped" in page.inner_text(f"{DONE} .figures")
    page.get_by_role("button", name="Send").wait_for()
    until(page, "!document.querySelector('.composer .main').disabled")
    assert real.client.get("/readyz").json()["generator"]["running"] == 0


def test_the_view_follows_until_the_reader_scrolls_up(real: Served, open_page: Any):
    page = open_page(real, "chat", height=420).page
    say(page, STORY)
    log = "document.querySelector('.log')"
    until(page, f"{log}.scrollTop > 40")
    page.locator(".log").hover()
    page.mouse.wheel(0, -120)
    page.get_by_role("button", name="Latest").wait_for()
    top, height = page.evaluate(f"[{log}.scrollTop, {log}.scrollHeight]")
    until(page, f"{log}.scrollHeight > {height} + 20")
    assert page.evaluate(f"{log}.scrollTop") == top
    page.get_by_role("button", name="Latest").click()
    until(page, f"{log}.scrollHeight - {log}.clientHeight - {log}.scrollTop < 30")
    # Wherever the focus is.
    assert page.evaluate("document.activeElement.className") == "log"
    page.keyboard.press("Escape")
    answered(page)
    assert "stopped" in page.inner_text(f"{DONE} .figures")


def test_a_worker_that_is_killed_is_a_sentence_and_the_next_request_works(real: Served, open_page: Any):
    page = open_page(real, "chat").page
    say(page, STORY)
    stop_when_long(page)
    assert real.generator.worker_pid is not None
    os.kill(real.generator.worker_pid, signal.SIGKILL)
    page.get_by_text("the worker ended").wait_for()
    assert len(answered(page)) > 40
    say(page, "Say hello.")
    assert answered(page, 2)
    assert real.generator.state is State.READY


def test_default_and_best_answer_the_same_prompt_side_by_side(real: Served, open_page: Any):
    page = open_page(real, "chat").page
    before = real.generator.serving.profile
    assert before is not None
    page.get_by_label("Message").fill("Name three colours.")
    page.get_by_role("button", name="Compare with default").click()
    page.locator(".verdict:not(:empty)").wait_for(timeout=60_000)
    assert "tokens/s instead of" in page.inner_text(".verdict")
    plain, best = (side.inner_text() for side in page.locator(".beside article").all())
    assert plain.startswith("default")
    assert best.startswith(f"best ({before.id})")
    page.get_by_role("button", name="Send").wait_for()
    assert real.generator.serving.profile == before


def test_a_comparison_that_is_stopped_while_it_loads_leaves_what_ran(real: Served, open_page: Any):
    opened = open_page(real, "chat")
    page, before = opened.page, real.generator.serving.profile
    page.get_by_label("Message").fill("Name three colours.")
    page.get_by_role("button", name="Compare with default").click()
    page.get_by_text("Loading default").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Send").wait_for(timeout=60_000)
    # There and back again.
    assert [url.endswith("/v1/generator/profile") for url in opened.tab.requests].count(True) == 2
    assert real.generator.serving.profile == before


def test_a_page_that_is_closed_during_a_comparison_leaves_what_ran(real: Served, open_page: Any):
    page, before = open_page(real, "chat").page, real.generator.serving.profile
    page.get_by_label("Message").fill(STORY)
    page.get_by_role("button", name="Compare with default").click()
    page.get_by_text("default answers").wait_for(timeout=60_000)
    assert real.generator.serving.profile is None
    page.goto("about:blank")
    pool = real.state.running()
    wait_for(lambda: real.generator.serving.profile == before and not pool.is_swapping, 60.0)


def test_another_profile_is_chosen_by_name(real: Served, open_page: Any):
    page = open_page(real, "chat").page
    best = page.get_by_label("Profile").input_value()
    page.get_by_label("Profile").select_option("default")
    page.get_by_text("profile default").wait_for(timeout=60_000)
    assert real.generator.serving.profile is None
    page.get_by_label("Profile").select_option(best)
    page.get_by_text(f"profile {best}").wait_for(timeout=60_000)
    assert real.generator.serving.profile is not None


def test_what_was_said_is_still_there_after_another_page(real: Served, open_page: Any):
    page = open_page(real, "chat")
    say(page.page, "Say yes.")
    text = answered(page.page)
    page.page.get_by_role("link", name="Home").click()
    page.page.wait_for_selector("article.profile")
    page.page.get_by_role("link", name="Chat").click()
    assert answered(page.page) == text
