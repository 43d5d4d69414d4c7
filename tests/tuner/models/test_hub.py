"""Fetching from a hub, with a hub library that reaches nothing."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tuner.errors import ModelFileError
from tuner.models.hub import hub_file

# The library's own class names, which don't all end in Error.
HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled = (
    type(name, (Exception,), {})
    for name in ("HfHubHTTPError", "LocalEntryNotFoundError", "OfflineModeIsEnabled")
)


class Hub:
    """Stands for the installed library; `files` are what the repository holds."""

    def __init__(self) -> None:
        self.files: list[str] = ["README.md", "m-q8_0.gguf"]
        self.refusal: Exception | None = None
        self.fetched: list[tuple[str, str]] = []

    def list_repo_files(self, repository: str) -> list[str]:
        if self.refusal is not None:
            raise self.refusal
        return self.files

    def hf_hub_download(self, repository: str, name: str) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.fetched.append((repository, name))
        return f"/hub/{repository}/{name}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    library, errors = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
    library.__dict__.update(list_repo_files=hub.list_repo_files, hf_hub_download=hub.hf_hub_download)
    for error in (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled):
        setattr(errors, error.__name__, error)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    return hub


def test_a_named_file(hub: Hub) -> None:
    assert hub_file("owner/repo:sub/m.gguf") == Path("/hub/owner/repo/sub/m.gguf")
    assert hub.fetched == [("owner/repo", "sub/m.gguf")]


def test_warnings_of_the_hub_stay_off_stderr(hub: Hub) -> None:
    logging.getLogger("huggingface_hub").setLevel(logging.WARNING)
    hub_file("owner/repo")
    assert not logging.getLogger("huggingface_hub").isEnabledFor(logging.WARNING)


def test_the_only_model_needs_no_name(hub: Hub) -> None:
    assert hub_file("owner/repo") == Path("/hub/owner/repo/m-q8_0.gguf")


def test_several_models_are_listed(hub: Hub) -> None:
    hub.files.append("m-f16.gguf")
    with pytest.raises(ModelFileError, match=r"name one of m-f16\.gguf, m-q8_0\.gguf"):
        hub_file("owner/repo")
    hub.files.clear()
    with pytest.raises(ModelFileError, match=r"holds no \.gguf file"):
        hub_file("owner/repo")


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (LocalEntryNotFoundError("x"), "out of reach"),
        (OfflineModeIsEnabled("x"), "offline mode"),
        (HfHubHTTPError("404\nno such repository"), "404 no such repository"),
    ],
)
def test_refusals_are_one_line(hub: Hub, refusal: Exception, expected: str) -> None:
    hub.refusal = refusal
    with pytest.raises(ModelFileError) as caught:
        hub_file("owner/repo:m.gguf")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_the_library_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelFileError, match="pip install huggingface_hub"):
        hub_file("owner/repo")
