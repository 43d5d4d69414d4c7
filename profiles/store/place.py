"""Where a database is: a path or a URL as users write it, checked before anything is opened."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from profiles.errors import StoreError

_POSTGRES = ("postgres", "postgresql")
_POSTGRES_DRIVER = "postgresql+psycopg"
_ALLOWED = "give a path, sqlite:////folder/name, or postgresql://user@host/name"


def parse_url(place: str | Path) -> URL:
    """The URL of a database given as one, or of the SQLite file at a path.

    Raises StoreError for a text that is no URL, a missing driver, a database that only lives in memory, or a
    kind of database that the store is not tested on.
    """
    if isinstance(place, Path) or "://" not in place:
        return _of_file(place)
    scheme, _, rest = place.partition("://")
    try:
        url = make_url(f"{_POSTGRES_DRIVER}://{rest}" if scheme in _POSTGRES else place)
        kind = url.get_backend_name()
        if kind not in ("sqlite", "postgresql"):
            raise StoreError(f"can't use this storage URL: {kind} is not supported", hint=_ALLOWED)
        url.get_dialect().import_dbapi()
    except ImportError as error:
        hint = "pip install 'cputune[postgres]', or give a path" if scheme.startswith(_POSTGRES) else _ALLOWED
        raise StoreError(f"can't use this storage URL: {error}", hint=hint) from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError(f"can't use this storage URL: {error}", hint=_ALLOWED) from error
    return _of_sqlite(url, place) if kind == "sqlite" else url


def file_of(place: str | Path) -> Path | None:
    """The SQLite file at a path or URL; None for another kind of database. Raises as `parse_url`."""
    url = parse_url(place)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def _of_file(path: str | Path) -> URL:
    return URL.create("sqlite", database=str(Path(os.path.expanduser(path)).absolute()))


def _of_sqlite(url: URL, place: str) -> URL:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise StoreError(
            f"can't use this storage URL: {place}", hint="give the path of a file, as sqlite:////folder/name"
        )
    return url.set(database=str(Path(os.path.expanduser(url.database)).absolute()))
