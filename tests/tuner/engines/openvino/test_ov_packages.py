"""Whether the installed packages belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.engines.base import EngineError
from tuner.engines.openvino import packages

ODD = {"openvino": "2025.2.0", "openvino-genai": "2025.1.0.0", "openvino-tokenizers": "2025.2.0.1"}


def test_k04_the_package_of_another_release_is_named() -> None:
    said = packages.mismatch(ODD)
    assert said is not None
    assert said.startswith("openvino-genai 2025.1.0.0 is not of the release 2025.2.0 of the others")
    assert "\n" not in said


def test_k04_the_last_number_is_the_package_s_own() -> None:
    assert packages.mismatch({**ODD, "openvino-genai": "2025.2.0.3"}) is None
    assert packages.mismatch({}) is None


def test_k04_the_probe_says_it_before_anything_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in ODD.items():
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EngineError, match=r"openvino-genai 2025\.1\.0\.0 is not"):
        packages.check()
