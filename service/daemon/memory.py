"""What the watcher remembers from tick to tick, in a side file that may be lost."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from service.daemon.drift import Reference
from service.daemon.quiet import Spent


@dataclass(frozen=True)
class Circumstances:
    """What decides speed besides the configuration; where one of them is another, measurements are old."""

    fingerprint: str
    model_digest: str
    engine_build: str
    kernel: str
    governors: str = ""

    @property
    def question(self) -> tuple[str, str]:
        """Machine and model: with another one, another profile is asked for."""
        return self.fingerprint, self.model_digest

    def changes(self, now: Circumstances) -> tuple[str, ...]:
        """What is another now, each in words. What either side does not know is no change."""
        named = (
            ("the engine", self.engine_build, now.engine_build),
            ("the kernel", self.kernel, now.kernel),
            ("the governor", self.governors, now.governors),
        )
        return tuple(f"{what} was {old}, is {new}" for what, old, new in named if old and new and old != new)


@dataclass(frozen=True)
class Trial:
    """A promotion whose live latencies are still watched: those of the profile before it, by depth."""

    before: dict[int, list[float]]
    worse_windows: int = 0
    values: int = 0


@dataclass(frozen=True)
class Memory:
    """All of it; the sums are those of the charts (`service.daemon.drift.Chart`).

    `accepted` are the circumstances in which the running configuration was last found the best known,
    `searched_for` why the last search was begun,
    `confirmed` the log ratio by which a confirming set showed it slower, `slow_sets` how many sets in a row
    showed the machine slower as a whole, `window` live latencies not judged yet, `failed` how often something
    failed in a row, with the time of the last.
    """

    accepted: Circumstances | None = None
    searched_for: str = ""
    reference: Reference | None = None
    relative_sum: float = 0.0
    common_sum: float = 0.0
    live_sum: float = 0.0
    confirmed: float | None = None
    slow_sets: int = 0
    measured_at_s: float | None = None
    window: dict[int, list[float]] = field(default_factory=dict)
    live_reference: dict[int, list[float]] = field(default_factory=dict)
    trial: Trial | None = None
    spent: Spent = field(default_factory=Spent)
    failed: dict[str, tuple[int, float]] = field(default_factory=dict)

    def begun_anew(self, accepted: Circumstances | None, reference: Reference | None = None) -> Memory:
        """After a promotion or a search: nothing of what was suspected is left."""
        return Memory(accepted=accepted, reference=reference, spent=self.spent)

    def with_failure(self, what: str, now_s: float) -> Memory:
        """After something failed."""
        count = self.failed.get(what, (0, 0.0))[0] + 1
        return replace(self, failed={**self.failed, what: (count, now_s)})

    def without_failure(self, what: str) -> Memory:
        """After it worked."""
        return replace(self, failed={name: told for name, told in self.failed.items() if name != what})


_FORM = TypeAdapter(Memory)


def load(path: Path) -> tuple[Memory, str | None]:
    """What a file holds, with why it is empty where the file can't be used."""
    try:
        return _FORM.validate_json(path.read_bytes()), None
    except FileNotFoundError:
        return Memory(), None
    except (OSError, ValidationError) as error:
        first = str(error).partition("\n")[0]
        return Memory(), f"{path} can't be used ({first}): what was learned about drift begins anew"


def save(path: Path, memory: Memory) -> None:
    """Replace the file as a whole; OSError where that fails, the old one stays then."""
    new = path.with_name(f"{path.name}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with new.open("wb") as file:
            file.write(_FORM.dump_json(_FORM.validate_python(asdict(memory)), indent=1))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
