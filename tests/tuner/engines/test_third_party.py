"""An engine from another distribution: registered by its entry point alone, listed, searched."""

import json
from pathlib import Path

import pytest

from tests.support.commands import command
from tests.support.flow import Flow

MODULE = """
from tuner.engines.simulated.describe import Simulated


class Echo(Simulated):
    name = "echo"
"""
METADATA = "Metadata-Version: 2.1\nName: echo-engine\nVersion: 1.0\n"


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution as pip does: a module, its metadata and its entry point."""
    site = tmp_path / "site"
    described = site / "echo_engine-1.0.dist-info"
    described.mkdir(parents=True)
    (site / "echo_engine.py").write_text(MODULE)
    (described / "METADATA").write_text(METADATA)
    (described / "entry_points.txt").write_text("[cputune.engines]\necho = echo_engine:Echo\n")
    monkeypatch.setenv("PYTHONPATH", str(site))


@pytest.mark.usefixtures("home", "echo")
def test_it_is_listed_beside_our_own():
    listed = {row["name"]: row for row in json.loads(command("engines", "--json").stdout)["engines"]}
    assert listed["echo"]["available"] is True
    assert set(listed) > {"echo", "llama_cpp", "simulated"}


@pytest.mark.usefixtures("echo")
def test_it_is_searched_like_our_own(flow: Flow):
    ended = command(
        "search", "--model", str(flow.model), "--engines", "echo", "--variants", "source",
        "--trials", "2", "--budget", "10s", "--json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["baseline"]["engine"] == "echo"


@pytest.mark.usefixtures("home")
def test_without_its_distribution_it_is_unknown():
    ended = command("search", "--engines", "echo")
    assert ended.returncode == 2
    assert "unknown engine 'echo'" in ended.stderr
