"""D06 in the middle of a search: what was finished is safe, the error is one line, the next goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from profiles.errors import StoreError
from profiles.vocabulary import TrialStatus
from tests.support.flow import Flow, jump_at

pytestmark = pytest.mark.usefixtures("quick_quality", "workers")


def second_trial(happened: object) -> bool:
    return getattr(happened, "kind", "") == "trial" and getattr(happened, "detail", {}).get("number") == 1


def completed(flow: Flow) -> list[int]:
    return [trial.number for trial in flow.trials() if trial.status is TrialStatus.COMPLETE]


def test_d06_a_database_that_is_moved_away(flow: Flow):
    database = flow.home.database
    kept = database.with_name("moved")

    def move() -> None:
        # As a whole, with its log, so that nothing of it is left behind.
        for part in database.parent.glob(f"{database.name}*"):
            if not part.name.endswith(".lock"):
                part.rename(kept.with_name(part.name.replace(database.name, kept.name)))

    with pytest.raises(StoreError, match=rf"{database}.*the file was removed; run again .* or put it back"):
        flow.search(trials=6, observer=jump_at(second_trial, move))
    assert not database.exists(), "it is not made anew behind the user's back"
    for part in kept.parent.glob("moved*"):
        part.rename(part.with_name(part.name.replace("moved", database.name)))
    before = completed(flow)
    assert before[:2] == [0, 1]
    document = flow.search(trials=6)
    assert document["status"] in ("confirmed", "provisional", "no_gain")
    assert completed(flow)[: len(before)] == before


@contextmanager
def full_disk(after: list[bool]) -> Iterator[None]:
    """Connections made from then on get no more pages."""

    def shrink(connection: sqlite3.Connection, _record: object) -> None:
        if after:
            connection.execute("PRAGMA max_page_count = 1")

    event.listen(Engine, "connect", shrink)
    try:
        yield
    finally:
        event.remove(Engine, "connect", shrink)


def test_d06_a_disk_that_fills_up(flow: Flow):
    full: list[bool] = []
    with (
        full_disk(full),
        pytest.raises(StoreError, match="full; free some space; what was stored before is safe"),
    ):
        flow.search(trials=30, observer=jump_at(second_trial, lambda: full.append(True)))
    assert completed(flow)[:2] == [0, 1]
    assert flow.search(trials=6)["trials"]["complete"] >= 2
