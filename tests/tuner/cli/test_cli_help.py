"""Help is quick to come because it loads nothing heavy, and it lists what works."""

import pytest

from tests.support.commands import loaded_by
from tests.support.flow import Flow
from tuner.cli.main import run

HEAVY = {
    "llama_cpp", "onnxruntime", "openvino", "torch", "transformers", "optuna", "sqlmodel", "sqlalchemy",
    "alembic", "plotly", "fastapi", "pydantic", "numpy", "rich",
}  # fmt: skip
COMMANDS = (
    "probe",
    "engines",
    "models",
    "search",
    "compare",
    "show",
    "history",
    "export",
    "doctor",
    "recommend",
    "verify",
    "invalidate",
)


@pytest.mark.parametrize("arguments", [("--help",), ("search", "--help"), ("models", "add", "--help")])
def test_help_loads_none_of_the_heavy_modules(arguments: tuple[str, ...], home):
    assert loaded_by(*arguments) & HEAVY == set()
    assert not home.exists()


def test_a_probe_loads_neither_an_engine_nor_the_store(home):
    assert loaded_by("probe", "--json") & HEAVY == set()
    assert not home.exists()


def test_history_of_an_empty_store_loads_no_optuna(home):
    # Nor what only another command needs.
    unneeded = {"optuna", "llama_cpp", "torch", "pydantic_settings", "service"}
    assert loaded_by("history", "--json") & unneeded == set()


@pytest.mark.parametrize(
    ("call", "unneeded"),
    [
        ("history", {"optuna", "alembic", "plotly", "numpy", "rich"}),
        ("models list", {"optuna", "alembic", "plotly", "numpy", "rich"}),
        ("show {}", {"optuna", "alembic", "plotly"}),
        ("export {} --format json", {"optuna", "alembic", "plotly"}),
        ("recommend --model tiny --engines simulated", {"optuna", "alembic", "plotly", "rich"}),
    ],
)
def test_reading_loads_only_what_it_needs(call: str, unneeded: set[str], flow_after: Flow):
    with flow_after.store() as store:
        profile = store.profiles()[0].id
    assert loaded_by(*call.format(profile).split()) & unneeded == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]):
    assert run([name, "--help"]) == 0
    out = capsys.readouterr()
    assert f"cputune {name}" in out.out
    assert out.err == ""


def test_the_help_lists_the_commands_with_a_line_each(capsys: pytest.CaptureFixture[str]):
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in COMMANDS)


def test_without_a_command_the_help_is_the_answer(capsys: pytest.CaptureFixture[str]):
    assert run([]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("Usage: cputune")
