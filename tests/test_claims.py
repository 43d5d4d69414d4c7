"""Measured claims in README and docs stand beside the command that repeats them, and that command exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.run import BENCHMARKS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MEASURED_PAGES = [ROOT / "docs" / "proof.md", ROOT / "docs" / "advice.md"]
"""Pages whose tables hold what was measured."""

FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
CLAIM = re.compile(
    r"\d(?:\.\d+)?(?:x the speed| ?x (?:faster|slower)| times (?:as fast|faster|slower|the speed))"
)
COMMAND = re.compile(r"(?:^|[`\s])((?:cputune|make|python -m) [a-z][^`\n]*)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def sections(text: str) -> Iterator[str]:
    """A page cut at its headings."""
    fenced = FENCE.sub(lambda block: block.group().replace("\n#", "\n "), text)
    return iter(re.split(r"^(?=#+ )", fenced, flags=re.MULTILINE))


def unbacked(text: str) -> list[str]:
    """The speed-ups that a page claims in a section that names no command."""
    return [
        claim.group() for part in sections(text) for claim in CLAIM.finditer(part) if not COMMAND.search(part)
    ]


@each_page
def test_speed_ups_stand_beside_their_command(page: Path) -> None:
    assert unbacked(page.read_text(encoding="utf-8")) == []


def test_a_bare_claim_is_noticed() -> None:
    text = "# Fast\n\nIt is 3x faster.\n\n# How\n\nRun `cputune search`: 1.4 times as fast.\n"
    assert unbacked(text) == ["3x faster"]


@each_page
def test_transcripts_name_their_command(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    bare = [
        found.group(2)[:60]
        for found in re.finditer(r"([^\n]+)\n+ *```text\n(.*?)```", text, re.DOTALL)
        if not COMMAND.search(found.group(1))
    ]
    assert bare == []


@pytest.mark.parametrize("page", MEASURED_PAGES, ids=lambda page: page.name)
def test_measured_tables_stand_under_their_command(page: Path) -> None:
    bare = []
    for part in re.split(r"^(?=#{1,2} )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        before, table, _ = part.partition("\n|")
        if table and not COMMAND.search(before):
            bare.append(part.splitlines()[0])
    assert bare == []


@each_page
def test_commands_of_benchmarks_exist(page: Path) -> None:
    wrong = []
    for command in COMMAND.findall(re.sub(r" *\\\n *", " ", page.read_text(encoding="utf-8"))):
        words = shlex.split(command.partition(" #")[0]) if command.count("'") % 2 == 0 else []
        if words[:2] == ["make", "bench"]:
            named = [word for word in " ".join(words[2:]).removeprefix("ARGS=").split() if word in BENCHMARKS]
            wrong += [] if named else [command]
        if words[:2] == ["python", "-m"] and len(words) > 2 and words[2].startswith("tests."):
            wrong += [] if takes(words[2], words[3:]) else [command]
    assert wrong == []


def takes(module: str, words: list[str]) -> bool:
    """Whether a module exists whose source knows each of these options."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        return False
    source = Path(found.origin).read_text(encoding="utf-8")
    options = [word.partition("=")[0].rstrip(".,:;)]") for word in words if word.startswith("--")]
    return all(f'"{option}"' in source for option in options)


def test_commands_that_do_not_exist_are_noticed() -> None:
    assert takes("tests.benchmarks.advice", ["--row", "bf16"])
    assert not takes("tests.benchmarks.advice", ["--rows", "bf16"])
    assert not takes("tests.benchmarks.nothing", [])
