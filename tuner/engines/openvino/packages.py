"""OpenVINO's packages: they run together only where they come from one release."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from tuner.engines.base import EngineError

TRIO = ("openvino", "openvino-genai", "openvino-tokenizers")


def installed() -> dict[str, str]:
    """The versions of those of the packages that are installed."""
    found = {}
    for name in TRIO:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def check() -> None:
    """Raises EngineError that names the package which is of another release."""
    problem = mismatch(installed())
    if problem is not None:
        raise EngineError(problem)


def mismatch(versions: Mapping[str, str]) -> str | None:
    """Which package is not of the others' release, by the first three numbers; None where all agree."""
    releases = {name: ".".join(text.split(".")[:3]) for name, text in versions.items()}
    usual = max(releases.values(), key=lambda release: list(releases.values()).count(release), default="")
    odd = {name: versions[name] for name, release in releases.items() if release != usual}
    if not odd:
        return None
    named = ", ".join(f"{name} {text}" for name, text in odd.items())
    return (
        f"{named} is not of the release {usual} of the others: install one release of all with"
        f" pip install {' '.join(f'{name}=={usual}.*' for name in TRIO)}"
    )
