"""Shell completion: the scripts that shells load, and what they are told."""

import pytest

from tests.support.commands import command


@pytest.mark.parametrize(
    ("shell", "part"),
    [("bash", "complete -o default"), ("zsh", "#compdef cputune"), ("fish", "complete --command")],
)
def test_each_shell_has_its_script(home, monkeypatch: pytest.MonkeyPatch, shell: str, part: str):
    monkeypatch.setenv("_CPUTUNE_COMPLETE", f"source_{shell}")
    ended = command()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert part in ended.stdout
    assert "_CPUTUNE_COMPLETE" in ended.stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("cputune his", {"history"}), ("cputune db ", {"check", "backup", "upgrade", "export", "import"})],
)
def test_commands_are_completed(home, monkeypatch: pytest.MonkeyPatch, typed: str, expected: set[str]):
    monkeypatch.setenv("_CPUTUNE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    assert set(command().stdout.split()) == expected
    assert not home.exists()
