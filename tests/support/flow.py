"""Searches with the simulated engine, kept short by a clock that jumps to the end of the budget."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles.records import StudyRecord, TrialRecord
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS
from tuner.events import Event, Observer, ignore
from tuner.home import Home
from tuner.request import SearchRequest
from tuner.tune import tune

PAIRS = 5
"""So many confirmation pairs are run before the clock jumps."""
JUMP_S = 1e6


@dataclass
class Flow:
    """One data folder and one model on which searches are run."""

    home: Home
    model: Path
    events: list[Event] = field(default_factory=list)

    def request(self, **changes: Any) -> SearchRequest:
        """A small bounded search, with what the caller changes."""
        fields = {
            "model": str(self.model),
            "workload": WORKLOADS["chat"],
            "quality": QUALITY_LEVELS["near-lossless"],
            "budget_s": 60.0,
            "trials": 3,
            "engines": ("simulated",),
            "bounded": True,
            **changes,
        }
        return SearchRequest(**fields)

    def search(self, *, pairs: int = PAIRS, observer: Observer = ignore, **changes: Any) -> dict[str, Any]:
        """Run a search to its end; its events are in `events`."""
        self.events = []
        jumped_s = 0.0

        def watch(event: Event) -> None:
            nonlocal jumped_s
            self.events.append(event)
            if event.kind == "pair" and event.detail["pair"] == pairs:
                jumped_s = JUMP_S
            observer(event)

        return tune(
            self.request(**changes),
            home=self.home,
            observer=watch,
            clock=lambda: time.monotonic() + jumped_s,
        )

    def of_kind(self, kind: str) -> list[Event]:
        """The last search's events of a kind."""
        return [event for event in self.events if event.kind == kind]

    @property
    def notes(self) -> str:
        """The last search's notes, a line each."""
        return "\n".join(event.message for event in self.of_kind("note"))

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store of the data folder."""
        with Store.open(self.home.database) as store:
            yield store

    def study(self, wanted: str | None = None) -> StudyRecord:
        """A study by its id; else the one that changed last."""
        with self.store() as store:
            return store.studies()[0] if wanted is None else store.study(wanted)

    def trials(self, study: str | None = None) -> tuple[TrialRecord, ...]:
        """The trials of a study; else of the one that changed last."""
        with self.store() as store:
            return store.trials(study or store.studies()[0].id)

    def statuses(self) -> Counter[str]:
        """How the trials of the study that changed last ended."""
        return Counter(str(trial.status) for trial in self.trials())


def jump_at(wanted: Callable[[Event], bool], then: Callable[[], None]) -> Observer:
    """An observer that calls `then` at the first event that is wanted."""
    done = False

    def watch(event: Event) -> None:
        nonlocal done
        if not done and wanted(event):
            done = True
            then()

    return watch
