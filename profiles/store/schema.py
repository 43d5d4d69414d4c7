"""The schema's version: checked by plain SQL on every opening, changed by Alembic when it must."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import inspect, text

from profiles import migrations
from profiles.errors import SchemaTooNewError
from profiles.store.database import Database

SCRIPTS = Path(migrations.__file__).parent


@dataclass(frozen=True)
class Upgrade:
    """What opening did: the schema before (None for a new database), and the backup where one was made."""

    before: str | None
    backup: Path | None = None


def prepare(database: Database) -> Upgrade:
    """Bring a database to the program's schema: nothing to do, create, or back up and upgrade.

    Raises SchemaTooNewError, with the database untouched, when a newer program wrote it, and StoreError
    when it can't be read or written.
    """
    database.check_place()
    version = stored_version(database)
    if _is_current(database, version):
        return Upgrade(version)
    with database.schema_lock():
        version = stored_version(database)
        if _is_current(database, version):
            return Upgrade(version)
        backup = None
        if version not in (None, migrations.LATEST) and database.path:
            backup = database.backup(stamped(database.path, version))
        database.create_file()
        _upgrade(database)
        return Upgrade(version, backup)


def stamped(path: Path, word: str | None = None) -> Path:
    """A name for a backup beside a database; no two are equal."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return path.with_name(".".join(part for part in (path.name, word, stamp, "backup") if part))


def stored_version(database: Database) -> str | None:
    """The revision of a database; None for one that is new, empty or has only Optuna's tables.

    Raises SchemaTooNewError when this program doesn't know the revision.
    """
    if database.path and not database.path.exists():
        return None
    with database.looking() as connection:
        if not inspect(connection).has_table(migrations.VERSION_TABLE):
            return None
        found = connection.execute(text(f"SELECT version_num FROM {migrations.VERSION_TABLE}")).scalar()
    version = None if found is None else str(found)
    if version and version > migrations.LATEST:
        raise SchemaTooNewError(
            f"database {database} has schema {version}, left untouched",
            allowed=f"up to {migrations.LATEST}",
            hint="upgrade cputune, or name another database",
        )
    return version


def _is_current(database: Database, version: str | None) -> bool:
    return version == migrations.LATEST and database.logs_ahead()


def _upgrade(database: Database) -> None:
    from alembic import command
    from alembic.config import Config

    with database.writing() as session:
        config = Config()
        # ConfigParser reads a single percent sign as the start of a reference.
        config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
        config.attributes["connection"] = session.connection()
        command.upgrade(config, "head")
