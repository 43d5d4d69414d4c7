"""Text from models, file names and errors is shown as it is and runs nothing; the policy holds; the token."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.flow import Flow
from tests.support.looks import PLACES, faults_of, place_of
from tests.support.serving import Served, serving
from tests.support.tiny import write_tiny_model
from tuner.home import Home

HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\"></script><script>document.title='taken'</script>&lt;b&gt;"
)
TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service whose model, study and lost trials have such names and reasons."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPUTUNE_LOCK", str(folder / "measuring.lock"))
        flow = Flow(Home(folder / "home"), write_tiny_model(folder / "tiny.gguf"))
        flow.search(trials=3)
    with closing(sqlite3.connect(flow.home.database)) as connection, connection:
        connection.execute("UPDATE cputune_model SET name = ?", (HOSTILE,))
        connection.execute("UPDATE cputune_study SET name = ?", (HOSTILE,))
        connection.execute(
            "UPDATE cputune_trial SET status = 'crash', reason = ? WHERE number = 1", (HOSTILE,)
        )
    with serving(flow.home, engine="simulated", model=str(flow.model)) as served:
        yield served


def unharmed(page: Any) -> None:
    assert "taken" not in page.title()
    assert page.query_selector("main img, main script") is None


@pytest.mark.parametrize("name", PLACES)
def test_hostile_names_are_text_on_every_page(hostile: Served, open_page: Any, name: str):
    page = open_page(hostile, place_of(hostile, name), width=375).page
    assert HOSTILE in page.inner_text("main")
    unharmed(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_hostile_answer_is_text(hostile: Served, open_page: Any):
    page = open_page(hostile, "chat").page
    delta = {"choices": [{"index": 0, "delta": {"content": HOSTILE}, "finish_reason": None}]}
    end = {
        "choices": [],
        "usage": {"completion_tokens": 1, "prompt_tokens": 1},
        "timings": {"ttft_ms": 1, "tokens_per_second": None, "cached_tokens": 0, "profile": HOSTILE},
    }
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in (delta, end)) + "data: [DONE]\n\n"
    page.route("**/v1/chat/completions", lambda r: r.fulfill(body=body, content_type="text/event-stream"))
    page.get_by_label("Message").fill(HOSTILE)
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-role=assistant]:not([aria-busy])")
    assert page.inner_text("[data-role=assistant] .words") == HOSTILE
    assert page.inner_text("[data-role=user] .words") == HOSTILE
    unharmed(page)


def test_the_policy_lets_nothing_inline_run(hostile: Served, open_page: Any):
    opened = open_page(hostile)
    page = opened.page
    tried = page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.append("document.title = 'taken'");
          const tried = [];
          try { document.body.append(script); } catch { tried.push("script"); }
          try { document.body.innerHTML = "<b>taken</b>"; } catch { tried.push("markup"); }
          return tried;
        }"""
    )
    assert "markup" in tried
    unharmed(page)
    assert opened.tab.complaints
    opened.tab.complaints.clear()


def test_the_page_asks_for_the_token_and_keeps_it(home: Path, open_page: Any):
    with serving(Home(home), generator=False, token=TOKEN) as served:
        assert served.client.get("/v1/overview").status_code == 401
        opened = open_page(served, None)
        page = opened.page
        page.wait_for_selector("dialog[open]")
        assert faults_of(page) == []
        for _ in range(3):
            page.keyboard.press("Escape")
        page.wait_for_selector("dialog[open]")
        page.locator("dialog input").fill("x" * 20)
        page.keyboard.press("Enter")
        page.get_by_text("That is not the token").wait_for()
        page.locator("dialog input").fill(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_text("Nothing has been measured on this machine yet.").wait_for()
        page.reload()
        page.get_by_text("Nothing has been measured on this machine yet.").wait_for()
        assert not page.query_selector("dialog[open]")
        opened.forgive("401")
