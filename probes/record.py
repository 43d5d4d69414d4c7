"""Reads typed fields out of a JSON document that describes a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from probes.errors import ProbeError

__all__ = ["Record"]

T = TypeVar("T")
_MOST = 10**100
"""Nothing of a machine comes near it, and what is computed from numbers up to here does not overflow."""
_BOUND = " and at most 10^100"


class Record:
    """A JSON object read field by field; a value of the wrong type raises a `ProbeError` that names it."""

    def __init__(self, value: object, where: str = "machine") -> None:
        if not isinstance(value, Mapping):
            raise ProbeError(f"{where} is not a JSON object", seen=_brief(value))
        self._fields = value
        self._where = where

    def text(self, name: str) -> str | None:
        """A string, or None when absent."""
        value = self._fields.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(name, value, "a string")

    def integer(self, name: str, low: int = 0) -> int | None:
        """An integer not below `low`, or None when absent."""
        value = self._fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= _MOST:
            raise self._wrong(name, value, f"an integer, at least {low}{_BOUND}")
        return value

    def number(self, name: str) -> float | None:
        """A finite number not below 0, or None when absent."""
        value = self._fields.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
            raise self._wrong(name, value, f"a number, at least 0{_BOUND}")
        return float(value)

    def flag(self, name: str) -> bool | None:
        """A boolean, or None when absent."""
        value = self._fields.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self._wrong(name, value, "true or false")

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers not below 0; empty when absent."""
        values = self._list(name)
        if any(isinstance(v, bool) or not isinstance(v, int) or not 0 <= v <= _MOST for v in values):
            raise self._wrong(name, values, f"a list of integers, each at least 0{_BOUND}")
        return tuple(value for value in values if isinstance(value, int))

    def integer_lists(self, name: str) -> tuple[tuple[int, ...], ...]:
        """A list of lists of integers not below 0; empty when absent."""
        rows = self._list(name)
        return tuple(Record({name: row}, self._where).integers(name) for row in rows)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        values = self._list(name)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(name, values, "a list of strings")
        return tuple(value for value in values if isinstance(value, str))

    def record(self, name: str) -> Record:
        """An object; an empty one when absent."""
        value = self._fields.get(name)
        return Record({} if value is None else value, f"{self._where}.{name}")

    def has(self, name: str) -> bool:
        """Whether the field is there with another value than null."""
        return self._fields.get(name) is not None

    def each(self, name: str, build: Callable[[Record], T]) -> tuple[T, ...]:
        """A list of objects, each built by `build`; empty when absent."""
        rows = self._list(name)
        return tuple(build(Record(row, f"{self._where}.{name}[{index}]")) for index, row in enumerate(rows))

    def _list(self, name: str) -> list[object]:
        value = self._fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise self._wrong(name, value, "a list")
        return list(value)

    def _wrong(self, name: str, value: object, allowed: str) -> ProbeError:
        return ProbeError(
            f"{self._where}.{name} has the wrong type or range", seen=_brief(value), allowed=allowed
        )


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
