"""optuna-dashboard opens the data folder's database and shows the study."""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.flow import Flow
from tuner.search.index import NUMBER

pytest.importorskip("optuna_dashboard")
Ask = Callable[[str], Any]


@pytest.fixture
def ask(flow_after: Flow) -> Iterator[Ask]:
    """Asks a dashboard on loopback that runs on the store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("optuna-dashboard")
    url = f"sqlite:///{flow_after.home.database}"
    command = [str(program), url, "--host", "127.0.0.1", "--port", str(port), "--server", "wsgiref"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        said = []
        for line in server.stdout:
            said.append(line)
            if "Listening on" in line:
                break
        assert server.poll() is None, "".join(said)

        def answer(path: str) -> Any:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
                return json.load(response)

        try:
            yield answer
        finally:
            server.terminate()


def test_the_dashboard_shows_the_study_with_its_trials(ask: Ask, flow_after: Flow):
    study = flow_after.study()
    (listed,) = ask("/api/studies")["study_summaries"]
    assert listed["study_name"] == study.storage_name
    shown = ask(f"/api/studies/{listed['study_id']}")
    ours = {trial.number: trial for trial in flow_after.trials()}
    numbers = {
        json.loads(attribute["value"])
        for trial in shown["trials"]
        for attribute in trial["user_attrs"]
        if attribute["key"] == NUMBER
    }
    assert numbers == set(ours)
    complete = [trial for trial in shown["trials"] if trial["state"] == "Complete"]
    assert complete
    assert all(len(trial["values"]) == 1 for trial in complete)
    assert shown["directions"] == ["minimize"]
