"""`cputune plot`: a page that needs no network, drawn by a real browser; one line where none is made."""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Tab, tab_of
from tests.support.flow import Flow
from tuner.cli.main import run
from tuner.search.page import GENERATOR, page

pytest.importorskip("plotly")
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>&amp;<b>"
CHARTS = ("history", "front", "quality", "importance", "slices", "threads", "variants")


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command says that fails because of its arguments."""

    def line(*arguments: str, code: int = 2) -> str:
        assert run(list(arguments)) == code
        out = capsys.readouterr()
        assert out.out == ""
        assert out.err.count("\n") == 1
        return out.err

    return line


@pytest.fixture
def drawn(flow_after: Flow, finished: Any, tmp_path: Path, capsys) -> Path:
    """The page of a study whose model has a hostile name."""
    with closing(sqlite3.connect(flow_after.home.database)) as connection, connection:
        connection.execute("UPDATE cputune_model SET name = ?", (HOSTILE,))
        connection.execute("UPDATE cputune_study SET name = ?", (HOSTILE,))
    out = tmp_path / "study.html"
    assert run(["plot", finished[1]["study"], "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["study"] == finished[1]["study"]
    assert {"history", "front", "variants"} <= set(told["charts"]) <= set(CHARTS)
    return out


def charts_of(opened: Tab) -> dict[str, int]:
    """Each place on the page with the number of plots that were drawn in it."""
    return opened.page.eval_on_selector_all(
        ".chart", "all => Object.fromEntries(all.map(e => [e.id, e.querySelectorAll('.main-svg').length]))"
    )


def clipped(opened: Tab) -> list[str]:
    """The places that are too low for what is drawn in them, so that charts lie over each other."""
    found: list[str] = opened.page.eval_on_selector_all(
        ".chart",
        "all => all.filter(e => e.clientHeight < 150"
        " || e.clientHeight + 1 < e.querySelector('.main-svg').clientHeight).map(e => e.id)",
    )
    return found


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_chart_is_drawn_without_a_network(drawn: Path, browser: Any, colours):
    with tab_of(browser, colours=colours) as opened:
        opened.open(drawn)
        opened.page.wait_for_selector("body[data-drawn]", timeout=60_000)
        places = charts_of(opened)
        assert len(places) >= 3
        assert all(places.values())
        assert clipped(opened) == []
        assert opened.requests == []
        assert opened.complaints == []
        # Names are shown as they are, and run nothing.
        assert opened.page.title() == f"cputune: {HOSTILE}"
        assert HOSTILE in opened.page.inner_text("h1")
        assert opened.page.query_selector("img") is None
        texts = opened.page.eval_on_selector_all(
            ".xtitle, .ytitle, .gtitle", "all => all.map(e => e.textContent)"
        )
        assert {"Optimisation history", "trial", "response_ms (ms)"} <= set(texts)
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_text_stands_out_from_its_paper(drawn: Path, browser: Any, colours):
    with tab_of(browser, colours=colours) as opened:
        opened.open(drawn)
        opened.page.wait_for_selector("body[data-drawn]", timeout=60_000)
        ink, paper = opened.page.evaluate(
            "() => [getComputedStyle(document.querySelector('.gtitle')).fill,"
            " getComputedStyle(document.body).backgroundColor]"
        )
        assert contrast(ink, paper) >= 7


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours written rgb(r, g, b) (WCAG 2)."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_nothing_on_the_page_names_a_host(drawn: Path):
    text = drawn.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "<script src" not in text
    assert "<link" not in text
    assert HOSTILE not in text


def test_charts_can_not_end_their_script():
    made = page("t", {HOSTILE: HOSTILE}, {"a": {"data": [], "layout": {"title": {"text": HOSTILE}}}})
    assert HOSTILE not in made
    assert made.count("<script") == 3 + made.count('"<script')  # what plotly.js holds in strings


def test_a_page_is_written_over_an_earlier_one_and_over_nothing_else(
    flow_after: Flow, finished: Any, tmp_path: Path, refused, capsys
):
    study = finished[1]["study"]
    out = tmp_path / "a.html"
    out.write_text(f"<!doctype html>{GENERATOR}old", encoding="utf-8")
    assert run(["plot", study, "--out", str(out)]) == 0
    assert "old" not in out.read_text(encoding="utf-8")[:300]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".a.html")] == []
    capsys.readouterr()
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF precious")
    assert "no page of cputune's" in refused("plot", study, "--out", str(model))
    assert model.read_bytes() == b"GGUF precious"


def test_what_can_not_be_written_is_one_line(flow_after: Flow, finished: Any, tmp_path: Path, refused):
    study = finished[1]["study"]
    assert "is a folder" in refused("plot", study, "--out", str(tmp_path))
    assert "no folder" in refused("plot", study, "--out", str(tmp_path / "missing" / "a.html"))
    assert "no study" in refused("plot", "s-nothing", "--out", str(tmp_path / "a.html"), code=3)


def test_without_plotly_the_line_says_what_to_install(
    flow_after: Flow, finished: Any, tmp_path: Path, refused, monkeypatch: pytest.MonkeyPatch
):
    for name in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.delitem(sys.modules, "tuner.search.plots", raising=False)
    line = refused("plot", finished[1]["study"], "--out", str(tmp_path / "a.html"))
    assert "pip install 'cputune[plot]'" in line
    assert list(tmp_path.glob("*.html")) == []


def test_a_study_in_which_nothing_ran_has_nothing_to_plot(
    flow_after: Flow, finished: Any, tmp_path: Path, refused
):
    study = finished[1]["study"]
    with closing(sqlite3.connect(flow_after.home.database)) as connection, connection:
        connection.execute("UPDATE cputune_trial SET status = 'crash', measurement_key = NULL")
    line = refused("plot", study, "--out", str(tmp_path / "a.html"), code=3)
    assert "nothing to plot" in line
