"""A bench that loads a model file the other way, read or mapped, where one way hangs."""

from __future__ import annotations

from typing import Any

from profiles.vocabulary import Config, TrialStatus
from tuner.errors import WorkerError
from tuner.events import Event, Observer, ignore
from tuner.measurement.bench import Bench
from tuner.measurement.measurement import Measurement


class PatientBench(Bench):
    """Retries a load that timed out once, with `mmap` turned; where that helps, it stays so and is told."""

    def __init__(self, *arguments: Any, observer: Observer = ignore, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._observe = observer
        self._works: bool | None = None

    def as_loaded(self, config: Config) -> Config:
        """The configuration as this bench really loads it."""
        if self._works is None or config.get("mmap") is None:
            return config
        return config.with_settings(mmap=self._works)

    def measure(self, config: Config, *arguments: Any, **options: Any) -> Measurement:
        """As the bench's; `requested` and `effective` say how the file was loaded."""
        try:
            return super().measure(self.as_loaded(config), *arguments, **options)
        except WorkerError as failure:
            mapped = config.get("mmap")
            if failure.status is not TrialStatus.LOAD_TIMEOUT or self._works is not None or mapped is None:
                raise
            self._works = not mapped
            return self._retry(config, failure, *arguments, **options)

    def _retry(self, config: Config, failure: WorkerError, *arguments: Any, **options: Any) -> Measurement:
        way = f"mmap={str(self._works).lower()}"
        try:
            measured = super().measure(self.as_loaded(config), *arguments, **options)
        except WorkerError as second:
            self._works = None
            reason = f"{failure.reason}; nor did it run with {way}: {second.reason}"
            raise WorkerError(failure.status, reason, second.log_tail) from second
        self._observe(
            Event(
                "note",
                f"{config.variant}: {failure.reason}; it loads with {way}, and so does all that follows",
            )
        )
        return measured
