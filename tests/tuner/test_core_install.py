"""K03: the core installs from ready-made wheels and its commands run, without an engine or a compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.commands import argv, environment
from tuner.engines import default_names
from tuner.process import ROOT

ENGINES = (
    "llama-cpp-python",
    "onnxruntime",
    "onnxruntime-genai",
    "openvino",
    "torch",
    "transformers",
    "gguf",
)
MODULES = ("llama_cpp", "onnxruntime", "onnxruntime_genai", "openvino", "torch", "transformers", "gguf")
BLOCKER = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MODULES}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what the repository holds of it."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in ("probes", "profiles", "tuner", "service"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    built = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(source / "dist")],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return source / "dist" / built.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def described(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def core(described: Message) -> Iterator[Requirement]:
    """What is installed where no extra is asked for."""
    for text in described.get_all("Requires-Dist", ()):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def test_k03_the_wheel_holds_no_compiled_code(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith((".so", ".c", ".cpp"))] == []


def test_k03_engines_are_extras(described: Message) -> None:
    names = {requirement.name.lower() for requirement in core(described)}
    assert names
    assert names.isdisjoint(ENGINES)
    assert "llama-cpp" in described.get_all("Provides-Extra", ())


def test_k03_everything_in_the_core_comes_as_a_ready_made_wheel(described: Message) -> None:
    """What pip would have built here by a compiler carries the plain tag of this platform."""
    compiled = set()
    left, seen = list(core(described)), set()
    while left:
        requirement = left.pop()
        if requirement.name in seen:
            continue
        seen.add(requirement.name)
        found = metadata.distribution(requirement.name)
        tags = [line for line in (found.read_text("WHEEL") or "").splitlines() if line.startswith("Tag: ")]
        if not any(tag.endswith("-none-any") or "manylinux" in tag for tag in tags):
            compiled.add(requirement.name)
        below = map(Requirement, found.requires or ())
        left += [r for r in below if r.marker is None or r.marker.evaluate({"extra": ""})]
    assert len(seen) > 10
    assert compiled == set()


@pytest.fixture
def bare(tmp_path: Path, home: Path) -> dict[str, str]:
    """An environment without engines, and without programs on the PATH."""
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "sitecustomize.py").write_text(BLOCKER)
    found = environment({"PATH": str(tmp_path / "nothing"), "CC": "", "CXX": ""})
    return {**found, "PYTHONPATH": f"{tmp_path / 'absent'}:{found.get('PYTHONPATH', '')}"}


def answer(bare: dict[str, str], *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    found = subprocess.run(
        argv(*arguments), env=bare, capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == code, found.stderr
    return found


def test_k03_a_probe_runs_without_engines_and_compilers(bare: dict[str, str]) -> None:
    document = json.loads(answer(bare, "probe", "--json").stdout)
    assert document["effective"]["cpu_count"] >= 1


def test_k03_engines_that_are_not_there_are_told_with_what_they_need(bare: dict[str, str]) -> None:
    engines = {e["name"]: e for e in json.loads(answer(bare, "engines", "--json").stdout)["engines"]}
    for name in default_names():
        assert not engines[name]["available"]
        assert "pip install 'cputune[" in engines[name]["reason"]
    assert "C++ compiler" in engines["llama_cpp"]["reason"]
    assert engines["simulated"]["available"]


def test_k03_a_search_without_engines_says_so_in_one_line(bare: dict[str, str], tiny_model: Path) -> None:
    found = answer(bare, "search", "--model", str(tiny_model), code=5)
    (line,) = found.stderr.strip().splitlines()
    assert "no engine can run here" in line
    assert "pip install" in line
