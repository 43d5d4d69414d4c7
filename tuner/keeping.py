"""Backing up, upgrading and moving a store: what `cputune db` does, without its words."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from profiles.errors import DocumentError, NotFoundError, StoreError
from profiles.store import Store
from profiles.store.database import Database
from profiles.store.place import parse_url
from profiles.store.schema import Upgrade, prepare, stamped, stored_version
from profiles.store.taken import Taken

LARGEST_BYTES = 64 << 20
"""Of a document that stands alone; a bundle may be of any size."""


@contextmanager
def existing_database(place: str | Path) -> Iterator[Database]:
    """A database that is there, not upgraded.

    Raises NotFoundError where none is, SchemaTooNewError for a newer program's.
    """
    with closing(Database(parse_url(place))) as database:
        if stored_version(database) is None:
            raise NotFoundError(f"no database of cputune at {database}", hint="cputune search makes one")
        yield database


def back_up(place: str | Path, target: Path | None) -> Path:
    """Copy a live SQLite database to a new file: `target`, one in the folder `target`, or one beside it."""
    with existing_database(place) as database:
        if database.path is None:
            raise StoreError(f"can't copy {database}", hint="use pg_dump")
        if target is None:
            target = stamped(database.path)
        elif target.is_dir():
            target = target / stamped(database.path).name
        return database.backup(target.absolute())


def upgraded(place: str | Path) -> Upgrade:
    """Bring a database to this program's schema; what was there before, and the backup that was made."""
    with existing_database(place) as database:
        return prepare(database)


def bundle_lines(place: str | Path, wanted: Sequence[str]) -> Iterator[str]:
    """The lines of a bundle of some studies, profiles and machines, or of everything.

    Raises NotFoundError, before the first line, for an unknown name.
    """
    with existing_database(place):
        pass
    with Store.open(place) as store:
        for document in store.bundle(wanted):
            yield json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n"


def write_new(path: Path, lines: Iterable[str]) -> int:
    """Write a file that gets its name when it is whole; the number of its lines.

    Raises StoreError where there is a file already, or none can be written.
    """
    if path.exists():
        raise StoreError(f"{path} is there already", hint="name a new file")
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    count = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(line)
                count += 1
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise StoreError(f"can't write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return count


def take_over(place: str | Path, file: str) -> list[Taken]:
    """Store what a file holds, a bundle or a document that stands alone, once all of it is checked.

    Raises DocumentError naming line and path of what is wrong.
    """
    from profiles.bundle import is_bundle, read_document, read_lines
    from profiles.documents import loads

    with _opened(file) as stream:
        origin = "stdin" if file == "-" else file
        try:
            if is_bundle(stream.readline()):
                stream.seek(0)
                for _ in read_lines(stream, origin):
                    pass
                stream.seek(0)
                documents = read_lines(stream, origin)
            else:
                stream.seek(0)
                text = stream.read(LARGEST_BYTES + 1)
                if len(text) > LARGEST_BYTES:
                    raise DocumentError(f"{origin} is larger than {LARGEST_BYTES >> 20} MiB and no bundle")
                documents = iter([(origin, read_document(loads(text, origin), origin))])
            with Store.open(place) as store:
                return [taken for origin, found in documents for taken in store.take_in(found, origin)]
        except UnicodeDecodeError:
            raise DocumentError(f"{origin} is no UTF-8 text", hint="the file is damaged") from None


@contextmanager
def _opened(file: str) -> Iterator[IO[str]]:
    """The text of a file, a pipe or stdin, that can be read twice."""
    with ExitStack() as stack:
        try:
            if file == "-":
                source: IO[bytes] = stack.enter_context(os.fdopen(0, "rb", closefd=False))
            else:
                source = stack.enter_context(Path(os.path.expanduser(file)).open("rb"))
        except OSError as error:
            raise DocumentError(f"can't read {file}: {error.strerror}") from None
        if not source.seekable():
            copy = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(source, copy)
            copy.seek(0)
            source = copy
        yield stack.enter_context(TextIOWrapper(source, encoding="utf-8"))
