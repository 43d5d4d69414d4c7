"""The web page's files: all there, served under the policy, and nothing in them that could become markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.routes.web import POLICY, STATIC
from tests.support.serving import Served, serving
from tuner.home import Home

FILES = sorted(path for path in STATIC.iterdir() if path.is_file())
SINKS = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(Home(tmp_path_factory.mktemp("web")), generator=False) as found:
        yield found


def test_the_page_is_served_under_the_policy(served: Served):
    answer = served.client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "default-src 'none'" in POLICY


def test_every_file_that_is_named_is_served(served: Served):
    named = set(re.findall(r"/static/[\w.-]+", (STATIC / "index.html").read_text()))
    for path in FILES:
        if path.suffix == ".js":
            found = re.findall(r'(?:from|import\() ?"\./([\w.-]+)"', path.read_text())
            named |= {f"/static/{name}" for name in found}
            for parts in re.findall(r'whole\(("[^)]*)\)', path.read_text()):
                named |= {f"/static/{name}.js" for name in re.findall(r'"(\w+)"', parts)}
    assert {path.name for path in FILES} - {"index.html"} == {name.rpartition("/")[2] for name in named}
    for name in sorted(named):
        answer = served.client.get(name)
        assert answer.status_code == 200, name
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = served.client.get(name, headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_a_host_or_makes_markup_of_text(path: Path):
    text = path.read_text(encoding="utf-8")
    assert [sink for sink in SINKS if sink in text] == []
    assert set(re.findall(r"https?://[^\"'\s]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_nothing_beside_the_files_is_reached(served: Served):
    for place in ("/static/../settings.py", "/static/%2e%2e%2fsettings.py", "/static/none.js", "/static/"):
        answer = served.client.get(place)
        assert answer.status_code == 404, place
        assert answer.json()["error"]["type"] == "not_found_error"


def test_plotly_is_served_as_its_package_brings_it(served: Served):
    pytest.importorskip("plotly")
    answer = served.client.get("/plotly.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert b"plotly.js v" in answer.content[:200]
    again = served.client.get("/plotly.js", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_endpoints_are_a_page_of_our_own(served: Served):
    answer = served.client.get("/docs")
    assert answer.headers["content-security-policy"] == POLICY
    for path in served.client.get("/openapi.json").json()["paths"]:
        assert path in answer.text
    assert "//" not in answer.text.replace("://www.w3.org", "")
    assert served.client.get("/redoc").status_code == 404
