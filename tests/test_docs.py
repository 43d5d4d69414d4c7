"""The documentation is held to the code: links, names, tables, commands; and no file knows its machine."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from profiles.metrics import METRICS, is_metric
from profiles.records import StudyStatus
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, TrialStatus
from service.daemon.settings import DaemonSettings
from service.settings import ServeSettings
from tuner import events

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("probes", "profiles", "tuner", "service")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COMMON_FOLDERS = ("tmp", "usr", "opt", "srv", "var", "home", "root", "mnt", "run", "etc", "dev")
LEFT_OUT = {".git", ".venv", "build", "dist", "__pycache__"}

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_page = pytest.mark.parametrize("page", PAGES, ids=page_id)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def options(generator: ModuleType) -> dict[str, set[str]]:
    """Each command of the program with its options."""
    return {
        name: {"--help", *(flag for p in command.params for flag in p.opts if flag.startswith("-"))}
        for name, command in generator.walk()
    }


def spans(page: Path) -> list[str]:
    """What a page sets in code style, outside of fenced blocks."""
    return SPAN.findall(FENCE.sub("", page.read_text(encoding="utf-8")))


def first_column(page: str, heading: str) -> set[str]:
    """The code spans in the first column of the tables whose first column is so called."""
    found: set[str] = set()
    inside = False
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        inside = bool(cells) and (inside or cells[0] == heading)
        if inside:
            found.update(SPAN.findall(cells[0]))
    return found


# --- links ---------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_internal_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_every_page_of_the_docs_is_linked_from_another() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in LINK.findall(page.read_text(encoding="utf-8"))
    }
    unlinked = [page_id(page) for page in PAGES if page.is_relative_to(ROOT / "docs") and page not in linked]
    assert unlinked == []


# --- names in the text ---------------------------------------------------------------------------


def resolves(name: str) -> bool:
    """Whether a dotted name below our packages is a module, or something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@each_page
def test_paths_and_names_of_the_code_exist(page: Path) -> None:
    dotted = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
    pathlike = re.compile(rf"(?:{'|'.join((*PACKAGES, 'docs', 'tests'))})/[\w./-]*")
    missing = []
    for span in spans(page):
        if pathlike.fullmatch(span):
            exists = (ROOT / span).exists() or is_example(span)
        else:
            exists = not dotted.fullmatch(span) or resolves(span)
        if not exists:
            missing.append(span)
    assert missing == []


def is_example(path: str) -> bool:
    """Names of files that a page tells the reader to make: an engine's, the next schema's."""
    return bool(re.search(r"NAME|[rs]\w*_?0003", path))


@each_page
def test_commands_and_make_targets_exist(page: Path, options: dict[str, set[str]]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong = []
    for line in command_lines(page):
        words = shlex.split(line, comments=True)
        if words[0] == "make" and len(words) > 1 and words[1] not in targets:
            wrong.append(line)
        if words[0].endswith("cputune") and not is_call(words[1:], options):
            wrong.append(line)
    assert wrong == []


def command_lines(page: Path) -> Iterator[str]:
    """Calls of make and cputune, in code spans and in shell blocks."""
    text = page.read_text(encoding="utf-8")
    blocks = [line for kind, block in FENCE.findall(text) if kind == "sh" for line in block.splitlines()]
    for line in (*blocks, *spans(page)):
        if re.match(r"(make [a-z]|(\.venv/bin/)?cputune [a-z])", line.strip()):
            yield line.strip().partition(" | ")[0]


def is_call(words: list[str], options: dict[str, set[str]]) -> bool:
    commands = [f"cputune {' '.join(words[:length])}" for length in (2, 1)]
    known = next((options[command] for command in commands if command in options), None)
    if known is None:
        # A group of commands is named as such.
        return any(command.startswith(f"{commands[1]} ") for command in options)
    return all(word.partition("=")[0] in known for word in words if word.startswith("-"))


# --- tables --------------------------------------------------------------------------------------


def test_generated_tables_are_fresh(generator: ModuleType) -> None:
    stale = [
        path.name for path, text in generator.pages().items() if text != path.read_text(encoding="utf-8")
    ]
    assert stale == [], "run: python docs/generate.py"


def test_schemas_are_fresh(generator: ModuleType) -> None:
    made = generator.schemas()
    assert set((ROOT / "docs" / "schemas").iterdir()) == set(made)
    stale = [path.name for path, text in made.items() if text != path.read_text(encoding="utf-8")]
    assert stale == [], "run: python docs/generate.py"


def test_a_changed_table_is_noticed(generator: ModuleType) -> None:
    page = "<!-- generated: workloads -->\nold\n<!-- end -->\n"
    assert "`chat`" in generator.render(page)
    with pytest.raises(KeyError):
        generator.render(page.replace("workloads", "nothing"))


def test_every_table_is_on_a_page(generator: ModuleType) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in generator.pages())
    assert [name for name in generator.BLOCKS if f"generated: {name} " not in text] == []


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("measuring.md", "metric", set(METRICS)),
        ("measuring.md", "workload", set(WORKLOADS)),
        ("measuring.md", "quality level", set(QUALITY_LEVELS)),
    ],
)
def test_generated_tables_hold_every_name(page: str, heading: str, names: set[str]) -> None:
    assert first_column(page, heading) == names


def test_statuses_are_all_explained() -> None:
    expected = {str(status) for status in (*TrialStatus, *StudyStatus)}
    assert first_column("vocabulary.md", "status") == expected


def test_events_are_those_that_are_told() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tuner").rglob("*.py"))
    told = set(re.findall(r'Event\(\s*"(\w+)"', source))
    assert first_column("architecture.md", "event") == told
    assert told <= set(events.KINDS)


def test_read_back_settings_are_settings(generator: ModuleType) -> None:
    from tuner import engines

    machine, model = generator.example()
    every = (engines.get("llama_cpp").dimensions(machine, model, WORKLOADS[w]) for w in ("rag", "batch"))
    described = [dimension for dimensions in every for dimension in dimensions]
    listed = first_column("engines.md", "setting")
    assert {dimension.name for dimension in described} <= listed
    read_back = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8").partition("read back from")[2]
    rows = [line for line in read_back.split("\n\n")[0].splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in SPAN.findall(row.split("|")[1])} == {d.name for d in described}


def test_metrics_are_named_as_registered() -> None:
    named = re.compile(r"metric `([\w.]+)`")
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in named.findall(text) if not is_metric(name)] == []


def test_environment_variables_are_read_by_the_code() -> None:
    named = {span for page in PAGES for span in spans(page) if re.fullmatch(r"CPUTUNE_\w+", span)}
    source = "".join(p.read_text(encoding="utf-8") for name in PACKAGES for p in (ROOT / name).rglob("*.py"))
    served = {f"CPUTUNE_SERVE_{name.upper()}" for name in ServeSettings.model_fields}
    served |= {f"CPUTUNE_DAEMON_{name.upper()}" for name in DaemonSettings.model_fields}
    assert named >= {"CPUTUNE_HOME", "CPUTUNE_LOCK"}
    assert [name for name in named - served if f'"{name}"' not in source] == []


def test_every_error_has_its_line() -> None:
    listed = first_column("cli.md", "error")
    for module in ("probes.errors", "profiles.errors", "tuner.errors"):
        own = importlib.import_module(module)
        kinds = {
            f"{module}.{name}"
            for name, value in vars(own).items()
            if isinstance(value, type) and value.__module__ == module and name.endswith("Error")
        }
        assert kinds - {"probes.errors.CputuneError"} <= listed


# --- no file knows where it was made -------------------------------------------------------------


def files() -> Iterator[Path]:
    """Every text file of the project itself."""
    for path in sorted(ROOT.rglob("*")):
        inner = path.relative_to(ROOT).parts
        hidden_cache = any(part in LEFT_OUT or part.endswith(("_cache", ".egg-info")) for part in inner)
        if path.is_file() and not hidden_cache and ".hypothesis" not in inner:
            yield path


def test_no_file_names_a_place_on_a_machine() -> None:
    personal = re.compile(rb"(?<![\w.])/(?:home|Users|root)/\w")
    here = [re.compile(rb"(?<![\w.])" + re.escape(str(place).encode()) + rb"(?![\w.-])") for place in own()]
    guilty = [
        page_id(path)
        for path in files()
        if any(pattern.search(path.read_bytes()) for pattern in (personal, *here))
    ]
    assert guilty == []


def own() -> list[Path]:
    """The checkout and the folder it stands in, but for folders that every system has."""
    common = {Path("/"), *(Path("/", name) for name in COMMON_FOLDERS)}
    return [place for place in (ROOT, ROOT.parent) if place not in common]


def test_versions_are_pinned_without_addresses() -> None:
    lists = sorted(ROOT.glob("constraints*.txt"))
    assert lists != []
    for path in (*lists, ROOT / "Makefile", ROOT / "pyproject.toml"):
        text = path.read_text(encoding="utf-8")
        assert "index-url" not in text
        assert "find-links" not in text
        assert path.suffix != ".txt" or "://" not in text
