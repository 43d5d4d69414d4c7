"""The settings of `cputune daemon`: those of `serve` and the watcher's, by flag, environment and file."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from service.daemon.decide import Limits
from service.daemon.quiet import Hours, Thresholds
from service.daemon.tick import Rules
from service.settings import ServeSettings, Several
from tuner.errors import UsageError
from tuner.home import Home

log = logging.getLogger(__name__)


class DaemonSettings(ServeSettings):
    """Every setting may come from a flag, from the environment as CPUTUNE_DAEMON_NAME, or from the YAML file;
    what stands first here wins."""

    model_config = SettingsConfigDict(env_prefix="CPUTUNE_DAEMON_", frozen=True, extra="forbid")

    watch: bool = Field(
        True, description="Whether to measure and re-tune; else only what was promoted is run."
    )
    tick_minutes: float = Field(15, gt=0, description="Time between two looks at what has changed.")
    check_hours: float = Field(
        24, gt=0, description="Time between two measurements of the running profile beside its control."
    )
    search_minutes: float = Field(5, ge=0.2, description="Budget of a search.")
    compare_minutes: float = Field(3, ge=0.2, description="Budget of a comparison, the regular one too.")
    daily_minutes: float = Field(60, gt=0, description="Time a day for all of these; what began is finished.")
    nice: int = Field(19, ge=0, le=19, description="Priority of what measures; 19 gives way to everybody.")
    hours: Several = Field(
        (), description="Times of day in which it may measure, like 22:00-06:00; any where none is given."
    )
    idle_seconds: float = Field(60, ge=0, description="No request must have come for so long.")
    busy_share: float = Field(0.10, ge=0, le=1, description="CPU time of other work on a quiet machine.")
    steal_share: float = Field(
        0.02, ge=0, le=1, description="CPU time that a virtual machine's host may take."
    )
    cpu_pressure_percent: float = Field(
        10, ge=0, le=100, description="Time in which tasks may wait for a CPU."
    )
    least_drift: float = Field(0.05, gt=0, le=1, description="The smallest slowdown that is looked for.")
    least_gain: float = Field(
        0.02, ge=0, le=1, description="What a profile must gain, for sure, to be promoted."
    )
    false_alarm_checks: float = Field(
        365, gt=1, description="Checks between two false alarms, on the average, before their confirmation."
    )
    patience: int = Field(3, ge=1, description="Checks in a row that show the whole machine slower.")
    retry_minutes: float = Field(30, gt=0, description="Wait after a failure; it doubles with each.")
    log_format: Literal["text", "json"] = Field("text", description="Log lines for people or for programs.")

    @field_validator("hours")
    @classmethod
    def _check_hours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            Hours.parse(text)
        return value

    @field_validator("profile")
    @classmethod
    def _check_profile(cls, value: str | None) -> None:
        if value is not None:
            raise ValueError("the daemon chooses what runs: cputune serve --profile runs one")

    @property
    def allowed_hours(self) -> tuple[Hours, ...]:
        """When it may measure; empty for any time."""
        return tuple(map(Hours.parse, self.hours))

    @property
    def rules(self) -> Rules:
        """How the watcher judges."""
        return Rules(
            Limits(
                check_s=3600 * self.check_hours,
                retry_s=60 * self.retry_minutes,
                daily_s=60 * self.daily_minutes,
                patience=self.patience,
            ),
            least_drift=self.least_drift,
            least_gain=self.least_gain,
            false_alarm_ticks=self.false_alarm_checks,
        )

    @property
    def thresholds(self) -> Thresholds:
        """What is a quiet machine."""
        return Thresholds(self.busy_share, self.steal_share, self.cpu_pressure_percent)


def read_settings(file: Path | None, given: dict[str, Any]) -> DaemonSettings:
    """The settings; `given` are flags, None where a flag was not given.

    Raises UsageError that names the file, or the flag, and the first value that is not allowed.
    """

    class WithFile(DaemonSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            found = () if file is None else (YamlConfigSettingsSource(settings_cls, file),)
            return (init_settings, env_settings, *found)

    origin = "the settings" if file is None else str(file)
    try:
        if file is not None:
            # The library takes a missing file for an empty one.
            file.read_bytes()
        read = WithFile(**{name: value for name, value in given.items() if value is not None})
    except OSError as error:
        raise UsageError(f"{origin} can't be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{origin}: {name}: {first['msg']}, got {first['input']!r}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UsageError(f"{origin} is no YAML file of settings: {error}") from error
    return read


class Configuration:
    """The settings as they are now: a changed file is read again, one that can't be used changes nothing."""

    def __init__(self, file: Path | None, given: dict[str, Any], home: Home) -> None:
        """Raises UsageError where there are neither usable settings nor the last good ones."""
        self.problem: str | None = None
        self._file = file
        self._given = given
        self._good = home.root / "daemon.last-good.yaml"
        self._seen = self._stamp()
        try:
            self.current = read_settings(file, given)
        except UsageError as error:
            if file is None or not self._good.exists():
                raise
            self.current = read_settings(self._good, given)
            self._complain(error)
        else:
            self._keep()

    def refresh(self) -> DaemonSettings:
        """The settings, read again where the file has changed."""
        stamp = self._stamp()
        if stamp == self._seen:
            return self.current
        self._seen = stamp
        try:
            self.current = read_settings(self._file, self._given)
        except UsageError as error:
            self._complain(error)
        else:
            log.info("the settings were read again", extra={"file": str(self._file)})
            self.problem = None
            self._keep()
        return self.current

    def _complain(self, error: UsageError) -> None:
        self.problem = f"{error}; the last good settings stay"
        log.error("%s", self.problem)

    def _stamp(self) -> tuple[int, int] | None:
        try:
            seen = None if self._file is None else self._file.stat()
        except OSError:
            return None
        return None if seen is None else (seen.st_mtime_ns, seen.st_size)

    def _keep(self) -> None:
        """Keep a copy for the next start."""
        if self._file is None:
            return
        new = self._good.with_suffix(".new")
        try:
            self._good.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(self._file.read_bytes())
            os.replace(new, self._good)
        except OSError as error:
            log.warning("the settings can't be kept for the next start: %s", error)
