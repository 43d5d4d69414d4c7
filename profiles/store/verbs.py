"""What all verbs of the store share: sessions, ids, times and plain values."""

from __future__ import annotations

import difflib
import math
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement
from sqlmodel import Session, and_, col, or_, select

from profiles.errors import NotFoundError
from profiles.records import digest_of, workload_identity
from profiles.store.database import Database
from profiles.store.owner import is_alive
from profiles.tables import Document, ProfileRow, StudyRow, Table, TrialRow
from profiles.vocabulary import Interval, Limit, Objective, Quality, TrialStatus, Workload

Row = TypeVar("Row", bound=Table)
Value = TypeVar("Value")


class Verbs:
    """A group of queries on one database; every writing verb is one commit."""

    def __init__(self, database: Database) -> None:
        self._database = database


def now() -> str:
    """The time as the tables hold it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def moment(text: str) -> datetime:
    """A table's time as a value."""
    return datetime.fromisoformat(text)


def stored(time: datetime) -> str:
    """The inverse of `moment`."""
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def has_status(
    session: Session, row: type[StudyRow] | type[TrialRow], statuses: Collection[str], *within: Any
) -> ColumnElement[bool]:
    """Whether rows have one of these statuses as they are read: what runs no more is interrupted.

    `within` are the conditions that its owners are looked for under.
    """
    running = col(row.status) == TrialStatus.RUNNING
    owners = session.exec(select(row.owner).where(running, *within).distinct())
    living = [owner for owner in owners if is_alive(owner)]
    asked: list[ColumnElement[bool]] = [col(row.status).in_(set(statuses) - {TrialStatus.RUNNING})]
    if TrialStatus.RUNNING in statuses:
        asked.append(and_(running, col(row.owner).in_(living)))
    if TrialStatus.INTERRUPTED in statuses:
        asked.append(and_(running, col(row.owner).not_in(living)))
    return or_(*asked)


def batches(values: Iterable[Value], size: int = 500) -> Iterator[list[Value]]:
    """The values in lists that fit into one statement's IN."""
    left = iter(values)
    while batch := list(islice(left, size)):
        yield batch


def new_id(session: Session, row: type[Table], prefix: str) -> str:
    """A short id that no row has yet."""
    while True:
        name = f"{prefix}-{secrets.token_hex(3)}"
        if session.get(row, name) is None:
            return name


def existing(session: Session, row: type[Row], key: object, what: str, *, for_update: bool = False) -> Row:
    """The row with this primary key, locked where a database can; NotFoundError says `what` is missing."""
    found = session.get(row, key, with_for_update=for_update)
    if found is None:
        raise NotFoundError(f"no {what} '{key}' in the store")
    return found


def not_found(what: str, wanted: str, known: Sequence[str], command: str) -> NotFoundError:
    """An error that lists the nearest known names, or the newest ones when none is near."""
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    listed = ", ".join(dict.fromkeys(near or known[:3])) or "none yet"
    return NotFoundError(
        f"no {what} '{wanted}'", hint=f"{'near' if near else 'known'}: {listed}; `{command}` lists all"
    )


def ambiguous(wanted: str, matches: Sequence[str]) -> NotFoundError:
    """An error for a beginning that several names share."""
    listed = ", ".join(matches[:5]) + (", ..." if len(matches) > 5 else "")
    return NotFoundError(
        f"'{wanted}' is the beginning of {len(matches)} names: {listed}", hint="write more of it"
    )


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """The values that are numbers: what is not a number was not measured."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def workload_key(workload: Workload) -> str:
    """Equal for workloads that measure the same, whatever their names."""
    return digest_of(workload_identity(workload))


def request_key(objectives: Iterable[Objective], quality_level: str, limits: Iterable[Limit]) -> str:
    """Equal for requests that ask for the same, whatever the order of their limits."""
    return digest_of(
        [[objective.metric, objective.direction] for objective in objectives],
        quality_level,
        sorted(str(limit) for limit in limits),
    )


def documents(values: Iterable[Objective | Limit]) -> list[Document]:
    """Objectives or limits as plain values."""
    return [asdict(value) for value in values]


def objectives_of(row: StudyRow | ProfileRow) -> tuple[Objective, ...]:
    """A row's objectives, the first one first."""
    return tuple(Objective(**document) for document in row.objectives)


def limits_of(row: StudyRow | ProfileRow) -> tuple[Limit, ...]:
    """A row's limits as given."""
    return tuple(Limit(**document) for document in row.limits)


def interval_document(interval: Interval | None) -> Document | None:
    """An interval as plain values."""
    return None if interval is None else asdict(interval)


def interval_of(document: Document | None) -> Interval | None:
    """The inverse of `interval_document`."""
    return None if document is None else Interval(**document)


def quality_document(quality: Quality) -> Document:
    """A quality as plain values; JSON has no word for what is not finite, so that becomes text."""
    return {k: v if math.isfinite(v) else repr(v) for k, v in asdict(quality).items()}


def quality_of(document: Document) -> Quality:
    """The inverse of `quality_document`."""
    values: Document = {k: float(v) if isinstance(v, str) else v for k, v in document.items()}
    return Quality(**values)
