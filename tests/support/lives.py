"""What every kind of model folder goes through after its search: it is shown, exported and served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.flow import Flow
from tests.support.serving import serving
from tuner.cli.main import run

COMPLETION = {"prompt": "12 or 34", "max_tokens": 4, "temperature": 0, "ignore_eos": True}


def show_export_and_serve(
    flow: Flow, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Each of them on the profile that a search published, on its own engine; the exported document."""
    best = document["best"]
    profile = best["profile_id"]
    assert run(["show", profile]) == 0
    assert best["variant"] in capsys.readouterr().out
    assert run(["export", profile, "--format", "yaml"]) == 0
    exported: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    assert (exported["engine"], exported["variant"]) == (best["engine"], best["variant"])
    assert Path(exported["model"]).exists()
    if best["engine"] != "llama_cpp":
        assert run(["export", profile]) == 2
        said = f"this configuration is for {best['engine']}: allowed are yaml and json"
        assert said in capsys.readouterr().err
    with serving(flow.home, profile=profile, context_tokens=64) as served:
        answer = served.client.post("/v1/completions", json=COMPLETION)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == COMPLETION["max_tokens"]
        assert served.generator.serving.engine.name == best["engine"]
    return exported
