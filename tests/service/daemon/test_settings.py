"""Settings from a file, the environment and flags; a file that can't be used changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.daemon.settings import Configuration, DaemonSettings, read_settings
from service.settings import ServeSettings
from tuner.errors import UsageError
from tuner.home import Home


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "daemon.yaml"


def write(file: Path, text: str) -> None:
    """Another text at another time."""
    seen = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text)
    os.utime(file, ns=(seen + 10**9, seen + 10**9))


def test_flags_go_before_the_environment_and_that_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    write(file, "port: 1\npatience: 2\ndaily_minutes: 30\nhours: ['22:00-06:00']\n")
    monkeypatch.setenv("CPUTUNE_DAEMON_PATIENCE", "7")
    monkeypatch.setenv("CPUTUNE_DAEMON_PORT", "2")
    found = read_settings(file, {"port": 3, "host": None})
    assert (found.port, found.patience, found.daily_minutes) == (3, 7, 30)
    assert found.rules.limits.daily_s == 1800
    assert [str(hours) for hours in found.allowed_hours] == ["22:00-06:00"]
    assert found.host == "127.0.0.1"
    monkeypatch.setenv("CPUTUNE_DAEMON_HOURS", "01:00-02:00,13:00-14:00")
    assert read_settings(file, {}).hours == ("01:00-02:00", "13:00-14:00")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("port: many", "port: Input should be a valid integer"),
        ("colour: red", "colour: Extra inputs are not permitted, got 'red'"),
        ("hours: ['22-6']", "hours: Value error, hours '22-6': write them like 22:00-06:00"),
        ("port: [", "is no YAML file of settings"),
        ("- a\n- b", "is no YAML file of settings"),
        ("\x00", "is no YAML file of settings"),
        ("least_drift: 0", "least_drift: Input should be greater than 0"),
    ],
)
def test_a_wrong_file_is_one_line(file: Path, text: str, part: str):
    write(file, text)
    with pytest.raises(UsageError) as caught:
        read_settings(file, {})
    assert str(file) in str(caught.value)
    assert part in str(caught.value)


def test_a_missing_file_is_said(file: Path):
    with pytest.raises(UsageError, match="can't be read: No such file"):
        read_settings(file, {})


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(file: Path, home: Path):
    write(file, "patience: 2")
    configuration = Configuration(file, {}, Home(home))
    assert configuration.refresh().patience == 2
    write(file, "patience: 4")
    assert configuration.refresh().patience == 4
    write(file, "patience: none at all")
    assert configuration.refresh().patience == 4
    assert "the last good settings stay" in (configuration.problem or "")
    file.unlink()
    assert configuration.refresh().patience == 4
    assert "can't be read" in (configuration.problem or "")
    write(file, "patience: 5")
    assert configuration.refresh().patience == 5
    assert configuration.problem is None


def test_a_start_with_a_broken_file_takes_the_last_good_one_and_says_so(file: Path, home: Path):
    write(file, "patience: 2")
    Configuration(file, {}, Home(home))
    write(file, "patience: [")
    again = Configuration(file, {}, Home(home))
    assert again.current.patience == 2
    assert "the last good settings stay" in (again.problem or "")


def test_a_first_start_with_a_broken_file_ends(file: Path, home: Path):
    write(file, "patience: [")
    with pytest.raises(UsageError):
        Configuration(file, {}, Home(home))


def test_every_setting_of_serve_is_one_of_the_daemon():
    assert ServeSettings.model_fields.keys() <= DaemonSettings.model_fields.keys()
    assert all(field.description for field in DaemonSettings.model_fields.values())
