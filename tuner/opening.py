"""Opens the store that a command is about: an own one, or the one that --storage names."""

from __future__ import annotations

from profiles.errors import NotFoundError
from profiles.store import Store
from profiles.store.place import file_of
from tuner.events import Event, Observer
from tuner.home import Home


def known_store(home: Home, storage: str | None) -> Store:
    """The store at a database URL or path, or the data folder's own for None.

    The own one is made where it is missing, as at a first call; one that is named must be there.
    Raises NotFoundError where it is not, and what opening raises.
    """
    file = None if storage is None else file_of(storage)
    if file is not None and not file.exists():
        raise NotFoundError(
            f"no database of cputune at {file}", hint="check --storage; a search with it makes one"
        )
    return Store.open(storage or home.database)


def store_to_write(home: Home, storage: str | None, observer: Observer) -> Store:
    """The same store for what measures: one that is named is made, with its folder, and a note says so."""
    file = None if storage is None else file_of(storage)
    is_new = file is not None and not file.exists()
    store = Store.open(storage or home.database)
    if is_new:
        observer(Event("note", f"made a new database: {file}"))
    return store
