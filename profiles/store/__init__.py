"""The store: every query on what was measured and published, as verbs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from profiles.errors import StoreError
from profiles.store.catalog import Catalog
from profiles.store.comparisons import Comparisons
from profiles.store.database import BUSY_TIMEOUT_S, Database
from profiles.store.owner import is_alive, owner_token
from profiles.store.place import parse_url
from profiles.store.promotions import Promotions
from profiles.store.published import Published
from profiles.store.schema import prepare
from profiles.store.studies import Studies
from profiles.store.trials import Trials

if TYPE_CHECKING:
    from profiles.bundle import Document
    from profiles.store.taken import Taken

__all__ = ["Store", "is_alive", "owner_token"]


class Store(Catalog, Studies, Trials, Comparisons, Published, Promotions):
    """An open database.

    Every writing verb is one commit of one finished thing; every reading verb sees one state. Verbs may be
    called from any thread. All raise StoreError when the database can't be reached, written or
    understood.
    """

    @classmethod
    def open(cls, place: str | Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Self:
        """Open a database by path or SQLAlchemy URL; make it when missing, upgrade it when old.

        `busy_timeout_s` is how long a write waits for another process's. Raises SchemaTooNewError, with
        the database untouched, when a newer program wrote it, and StoreError for everything else.
        """
        database = Database(parse_url(place), busy_timeout_s)
        try:
            prepare(database)
        except StoreError:
            database.close()
            raise
        return cls(database)

    @property
    def url(self) -> str:
        """The database's URL with its password, for others that keep tables in it (Optuna)."""
        return self._database.url.render_as_string(hide_password=False)

    @property
    def path(self) -> Path | None:
        """The SQLite file; None for another kind of database."""
        return self._database.path

    def schema_lock(self) -> AbstractContextManager[object]:
        """Held while tables are made or altered; for others that make theirs in the same database."""
        return self._database.schema_lock()

    def backup(self, target: Path) -> Path:
        """Copy the live database to a new file and return its path."""
        return self._database.backup(target)

    def bundle(self, wanted: Sequence[str] = ()) -> Iterator[dict[str, object]]:
        """The store, or some studies, profiles and machines with all that they rest on, as documents for
        another one (`profiles.store.outgoing`); NotFoundError for an unknown name."""
        from profiles.store.outgoing import bundle

        return bundle(self._database, wanted)

    def take_in(self, document: Document, place: str) -> tuple[Taken, ...]:
        """Store a document of another store's bundle (`profiles.store.incoming`)."""
        from profiles.store.incoming import take_in

        return take_in(self._database, document, place)

    def close(self) -> None:
        """Give back all connections; the store is not used afterwards."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
